"""What `tenure spark` shows of a run that goes on."""

import json
from typing import Any

from tenure.cli import main, spark_jobs, spark_view
from tenure.cli.spark_console import Console
from tenure.cli.spark_jobs import row_of
from tenure.cli.spark_view import PlainView, State
from tenure.jobs.spark import java
from tenure.jobs.spark.progress import Rate

METRICS = {"records_read": 12_000, "records_per_s": 4000.4, "executors": 2, "batches": 3, "late_records": 1}


def activity(**changes: Any) -> dict[str, Any]:
    """As `describe` tells of one."""
    known = {"name": "run-1", "status": "running", "attempt": 1, "progress": [3, 10], "error": "", "place": "host/1"}
    details = {"stage": {"name": "spark", "number": 2, "of": 3}, "metrics": METRICS}
    return known | {"details": details} | changes


def test_a_run_on_one_line() -> None:
    state = State("hello")
    assert state.sentence() == "hello: starting Spark"
    state.hear(activity(attempt=2))
    assert state.sentence() == (
        "hello: attempt 2, stage 2 of 3, 3 of 10 tasks, 2 executors, 3 batches, "
        "12,000 records read, 4,000 a second, 1 came too late"
    )


def test_plain_lines_are_told_now_and_then(monkeypatch: Any, capsys: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(spark_view.time, "monotonic", lambda: now[0])
    view = PlainView("hello")
    for second in range(12):
        now[0] = second
        view.hear(activity(progress=[second, 20]))
    told = capsys.readouterr().err.splitlines()
    assert [("5 of 20" in line, "10 of 20" in line) for line in told] == [(False, False), (True, False), (False, True)]


def test_the_list_has_stages_tasks_rates_and_executors() -> None:
    job: Any = {"id": "p", "type": "pipeline", "status": "idle", "activities": [activity()]}
    id, kind, status, run, place, what = row_of(job)
    assert (id, kind, status, run, place) == ("p", "pipeline", "running", "run-1", "host/1")
    assert what.startswith("stage 2 of 3, 3 of 10 tasks, 2 executors, 3 batches, 12,000 records read, 4,000 a second")
    ended = activity(status="failed", error="BadRecord: in:1")
    assert row_of(job | {"activities": [ended]})[-1] == "BadRecord: in:1"
    assert row_of(job | {"activities": []}) == ("p", "pipeline", "idle", "", "", "")


def test_rates_are_over_a_second_or_more() -> None:
    rate = Rate(0.0)
    assert [rate.at(100, 0.5), rate.at(300, 1.0), rate.at(400, 1.9), rate.at(500, 3.0)] == [0.0, 300.0, 300.0, 100.0]
    assert rate.at(10, 5.0) == 0.0, "an attempt that begins anew counts from 0"


def test_what_is_missing_is_said_before_anything_starts(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "in").touch()
    declared = 'name = "p"\nsource = { text = "in" }\nsink = { text = "out" }\n'
    (tmp_path / "p.toml").write_text(declared)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["spark", "run", str(tmp_path / "p.toml")]) != 0
    assert "Spark needs Java 17 or newer: there is none in JAVA_HOME or PATH" in capsys.readouterr().err
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    assert main(["spark", "submit", str(tmp_path / "p.toml")]) != 0
    assert "PySpark is not installed: pip install 'tenure[spark]'" in capsys.readouterr().err
    (tmp_path / "p.toml").write_text(declared + 'stages = [{ command = "./nowhere" }]')
    assert main(["spark", "run", str(tmp_path / "p.toml")]) == 2
    assert f"stage 1-command: there is no command {tmp_path}/nowhere" in capsys.readouterr().err
    assert main(["spark", "submit", str(tmp_path / "p.toml"), "--overlap", "wait"]) == 2
    assert "--overlap is skip, queue or cancel" in capsys.readouterr().err


def test_when_a_submitted_pipeline_is_to_run(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "in").touch()
    (tmp_path / "p.toml").write_text('name = "p"\nsource = { text = "in" }\nsink = { text = "out" }\n')
    monkeypatch.setattr(java, "find_java_home", lambda: tmp_path)
    asked: list[Any] = []
    monkeypatch.setattr(spark_jobs, "on_cluster", lambda connection, work, *arguments: asked.append(arguments))

    def options(*given: str) -> Any:
        assert main(["spark", "submit", str(tmp_path / "p.toml"), *given]) == 0, capsys.readouterr().err
        pipeline, id, found = asked.pop()
        assert pipeline.name == "p"
        return id, found

    assert options("--id", "x") == ("x", {"tz": "UTC", "overlap": "skip"})
    id, at = options("--at", "2026-03-01T03:00", "--tz", "Europe/Paris")
    assert (id, at["at"].isoformat()) == ("p", "2026-03-01T03:00:00+01:00")
    assert options("--after", "a", "--after", "b", "--overlap", "queue")[1]["after"] == ["a", "b"]
    assert options("--cron", "0 3 * * *")[1]["cron"] == "0 3 * * *"
    for wrong, why in (
        (("--at", "2026-03-01T03:00", "--tz", "Europe/Pari"), "no time zone 'Europe/Pari'"),
        (("--tz", "nowhere"), "no time zone 'nowhere'"),
        (("--cron", "nonsense"), "'nonsense' is no cron expression"),
        (("--cron", "0 3 * * *", "--tz", "nowhere"), "no time zone 'nowhere'"),
    ):
        assert main(["spark", "submit", str(tmp_path / "p.toml"), *wrong]) == 2
        assert why in capsys.readouterr().err
    assert not asked


def test_what_a_pipeline_prints_comes_as_lines_of_json(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "console"
    path.touch()
    console = Console(path, as_json=True)
    assert not console.copy()
    for written in (b"a: 1\nb: ", b'2 "quoted"\nc', b": 3"):
        with path.open("ab") as file:
            file.write(written)
        assert console.copy()
    console.end()
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [{"output": "a: 1"}, {"output": 'b: 2 "quoted"'}, {"output": "c: 3"}]
