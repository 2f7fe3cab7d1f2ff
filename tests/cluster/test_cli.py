"""The commands on a real cluster: an embedded node, found without being told where it is."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.cli import main
from tests.cluster.test_node import APPLICATION, Node, is_gone, running

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("cli")
    app = folder / "app_of_cli_tests.py"
    app.write_text(APPLICATION)
    with running(app) as node:
        node.ready()
        yield node


@pytest.fixture(autouse=True)
def _at_home(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the embedded node has left its note, and no other cluster is named."""
    monkeypatch.setenv("TENURE_STATE_DIR", str(node.log.parent / "state"))
    monkeypatch.delenv("TENURE_CLUSTER", raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[Any]:
    """The lines of JSON that a command prints."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code, capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_life_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "schedule", "counter", "life", "total=10")
    run(capsys, "schedule", "counter", "life", "total=10")
    run(capsys, "schedule", "counter", "life", "total=11", code=1)
    run(capsys, "schedule", "nonsense", "life", code=2)
    assert main(["schedule", "counter", "typo", "totla=10"]) == 2
    assert "has no field totla" in capsys.readouterr().err
    run(capsys, "state", "typo", code=1)  # nothing was made
    run(capsys, "publish", "life", '{"n": 1}', "--id", "once")
    run(capsys, "publish", "life", '{"n": 1}', "--id", "once")
    assert run(capsys, "ask", "life", '{"n": 4}') == [15]
    assert run(capsys, "state", "life") == [{"total": 15}]
    (described,) = run(capsys, "describe", "life")
    assert (described["type"], described["state"]) == ("counter", {"total": 15})
    run(capsys, "unschedule", "life")
    run(capsys, "state", "life", code=1)


def test_many_jobs_by_selector(capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(3):
        run(capsys, "schedule", "counter", f"many-{n}")
    assert [job["id"] for job in run(capsys, "jobs", "id=many-* and not id=many-1")] == ["many-0", "many-2"]
    assert [line["done"] for line in run(capsys, "pause", "id=many-*", "--dry-run")] == [False] * 3
    assert run(capsys, "jobs", "id=many-*", "and", "state=paused") == []
    assert [line["done"] for line in run(capsys, "pause", "id=many-*")] == [True] * 3
    assert len(run(capsys, "jobs", "state=paused and type=counter")) == 3
    run(capsys, "publish", "many-0", '{"n": 1}')
    assert [job["id"] for job in run(capsys, "jobs", "state=paused and state=waiting")] == ["many-0"]
    run(capsys, "resume", "id=many-*")
    assert run(capsys, "state", "many-0") == [{"total": 1}]
    assert [line["id"] for line in run(capsys, "cancel", "many-2")] == ["many-2"]
    assert [job["id"] for job in run(capsys, "jobs", "id=many-* and state=paused")] == ["many-2"]


def test_what_fails_is_found_and_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "schedule", "counter", "broken")
    run(capsys, "publish", "broken", '{"m": 1}')
    deadline_s = time.monotonic() + 20
    while not run(capsys, "jobs", "id=broken and state=retrying"):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    (described,) = run(capsys, "describe", "broken")
    assert "KeyError" in described["failure"]["error"]
    assert [line["id"] for line in run(capsys, "retry", "state=retrying", "--dry-run")] == ["broken"]
    run(capsys, "retry", "broken", "--skip")
    assert run(capsys, "ask", "broken", '{"n": 1}') == [1]
    letters = run(capsys, "dead-letters", "--to", "broken")
    assert [letter["reason"] for letter in letters] == ["Skipped"]
    assert run(capsys, "dead-letters", "discard", letters[0]["letter"])[0]["discarded"] == 1
    assert run(capsys, "dead-letters", "--to", "broken") == []


def test_messages_for_nobody_can_be_delivered_later(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "publish", "later", '{"n": 7}')
    deadline_s = time.monotonic() + 20
    while not (letters := run(capsys, "dead-letters", "--to", "later")):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    assert letters[0]["reason"] == "UnknownJob"
    run(capsys, "schedule", "counter", "later")
    assert run(capsys, "dead-letters", "replay", "--to", "later")[0]["replayed"] == 1
    assert run(capsys, "state", "later") == [{"total": 7}]


def test_bulk_from_standard_input(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    for job in ("bulk-0", "bulk-1"):
        run(capsys, "schedule", "counter", job)
    lines = [json.dumps({"to": f"bulk-{n % 2}", "message": {"n": 1}}) for n in range(2000)]
    lines[10] = "nonsense"
    lines[20] = json.dumps({"to": "bulk-0", "message": {"n": "one"}})
    env = {**os.environ, "PYTHONPATH": str(Path(tenure.__file__).parents[1])}
    app = str(node.log.parent / "app_of_cli_tests.py")
    done = subprocess.run(
        [sys.executable, "-m", "tenure.cli", "publish", "--json", "--app", app],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["stored"] == 1998
    assert [rejected["line"] for rejected in told["rejected"]] == [11, 21]
    assert "no JSON" in told["rejected"][0]["why"]
    assert "$[...]" in told["rejected"][1]["why"] or "Expected `int`" in told["rejected"][1]["why"]
    totals = [run(capsys, "state", job)[0]["total"] for job in ("bulk-0", "bulk-1")]
    assert sum(totals) == 1998


def test_looking_around(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    (seen,) = run(capsys, "nodes")
    assert (seen["id"], seen["state"], seen["partitions"]) == (node.ready()["node"], "running", 271)
    assert seen["types"] == {"counter": 1, "sleeper": 1}
    partitions = run(capsys, "partitions")
    assert [row["state"] for row in partitions] == ["open"] * 271
    assert run(capsys, "topics") == []


def test_the_doctor_finds_nothing_bad(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {verdict["about"]: verdict["standard"] for verdict in run(capsys, "doctor")}
    assert "bad" not in verdicts.values()
    assert {"members", "acknowledgements", "data", "nodes", "owners", "writes"} <= verdicts.keys()
    assert (verdicts["copies"], verdicts["clocks"]) == ("good", "good"), "members answer what they are asked"


def test_the_members_without_a_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A frozen node answers nothing; the error says what is missing instead of only that time has passed."""
    app = tmp_path / "app_alone.py"
    app.write_text(APPLICATION)
    command = [sys.executable, "-m", "tenure.cli", "member", "--name", "alone", "--port", "0", "--json"]
    env = {**os.environ, "PYTHONPATH": str(Path(tenure.__file__).parents[1])}
    member = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    assert member.stdout is not None
    try:
        ready = json.loads(member.stdout.readline())
        cluster = ["--cluster", ready["cluster"]]
        capsys.readouterr()
        assert main(["state", "a", *cluster]) == 3
        assert "no node has run here yet" in capsys.readouterr().err
        with running(app, cluster=ready["cluster"]) as node:
            node.ready()
        assert main(["state", "a", *cluster, "--timeout", "2"]) == 3
        assert "no node is running" in capsys.readouterr().err
        assert main(["doctor", *cluster]) == 1
        assert "✗ nodes: none is running" in capsys.readouterr().out
        member.terminate()
        assert member.wait(60) == 0
    finally:
        member.kill()
        member.stdout.close()
        member.wait()


def test_dev_starts_the_node_again_with_what_was_changed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "app_in_progress.py"
    app.write_text(APPLICATION)
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    env = {**os.environ, "PYTHONPATH": str(Path(tenure.__file__).parents[1])}
    command = [sys.executable, "-m", "tenure.cli", "dev", str(app), "--json"]
    dev = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    assert dev.stdout is not None
    try:
        first = json.loads(dev.stdout.readline())
        run(capsys, "schedule", "counter", "a")
        assert run(capsys, "ask", "a", '{"n": 1}') == [1]
        app.write_text(APPLICATION.replace('+= message["n"]', '+= 100 * message["n"]'))
        second = json.loads(dev.stdout.readline())
        assert second["pid"] != first["pid"]
        assert run(capsys, "ask", "a", '{"n": 1}') == [101], "its state has outlived the node"
        members = members_of_process(dev.pid)
        dev.terminate()
        assert dev.wait(30) == 0
        assert all(is_gone(java) for java in members)
    finally:
        dev.kill()
        dev.stdout.close()
        dev.wait()


def members_of_process(pid: int) -> list[Any]:
    import psutil

    return [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "java"]


def test_the_demo_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    (ledger,) = run(capsys, "demo", "--jobs", "100", "--messages", "5000", "--seed", "3")
    assert list(ledger) == ["sent", "applied", "lost", "doubled", "longest_pause_ms"]
    assert (ledger["sent"], ledger["applied"], ledger["lost"], ledger["doubled"]) == (5000, 5000, 0, 0)
    assert ledger["longest_pause_ms"] > 0


def test_chaos_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "--seconds", "15", "--jobs", "200", "--rate", "500", "--nodes", "2", "--json"]) == 0
    out, told = capsys.readouterr()
    ledger = json.loads(out)
    assert (ledger["sent"], ledger["applied"], ledger["lost"], ledger["doubled"]) == (7500, 7500, 0, 0)
    assert re.search("member . (joins|hands over)|kill -9 of member", told)
    assert re.search("node . (joins|is frozen|is drained)|kill -9 of node", told)


def test_nodes_are_added_and_removed(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    app = node.log.parent / "app_of_cli_tests.py"
    source = Path(tenure.__file__).parents[1]
    spawn = f"env PYTHONPATH={source} {sys.executable} -m tenure.cli node {app} --name {{name}}"
    (told,) = run(capsys, "scale", "add-node", "--spawn", spawn)
    (added,) = told["changed"]
    (scale,) = run(capsys, "scale")
    assert (scale["members"], len(scale["nodes"])) == (1, 2)
    assert min(found["partitions"] for found in scale["nodes"]) > 100
    assert run(capsys, "scale", "--to", "1") == [{"changed": [added]}]
    assert run(capsys, "scale", "--to", "1", "--run", "true") == [{"changed": []}]
    assert main(["scale", "add-node", "--spawn", f"{sys.executable} -c exit(7)"]) == 1
    assert "has ended with exit code 7" in capsys.readouterr().err
    assert main(["scale", "remove-node", added]) == 1
    assert "no node is called" in capsys.readouterr().err
    assert main(["scale", "remove-node", node.ready()["node"]]) == 2
    assert "is the last node" in capsys.readouterr().err
    assert main(["scale", "--spawn", "true"]) == 2


HOOK = """
import os, signal, subprocess, sys
from pathlib import Path

app, folder, replicas = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) - 1  # one is not ours
running = sorted(folder.glob("*.pid"))
for file in running[replicas:]:
    os.kill(int(file.read_text()), signal.SIGTERM)
    file.unlink()
for n in range(len(running), replicas):
    with (folder / f"{n}.log").open("wb") as log:
        command = [sys.executable, "-m", "tenure.cli", "node", app, "--name", f"replica-{n}"]
        node = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (folder / f"{n}.pid").write_text(str(node.pid))
"""


def test_a_hook_makes_the_nodes_so_many(node: Node, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It keeps a number of replicas, as an orchestrator does."""
    hook, app = tmp_path / "hook.py", node.log.parent / "app_of_cli_tests.py"
    hook.write_text(HOOK)
    source = Path(tenure.__file__).parents[1]
    command = f"env PYTHONPATH={source} {sys.executable} {hook} {app} {tmp_path} {{nodes}}"
    try:
        (more,) = run(capsys, "scale", "--to", "3", "--run", command)
        (scale,) = run(capsys, "scale")
        assert sorted(more["changed"]) == sorted(
            found["id"] for found in scale["nodes"] if found["name"].startswith("replica-")
        )
        assert len(more["changed"]) == 2
        assert min(found["partitions"] for found in scale["nodes"]) >= 271 // 3
        (fewer,) = run(capsys, "scale", "--to", "2", "--run", command)
        assert fewer["changed"] == [found["id"] for found in scale["nodes"] if found["name"] == "replica-1"]
        assert run(capsys, "scale", "--to", "2", "--run", command) == [{"changed": []}]
        (last,) = run(capsys, "scale", "--to", "1", "--run", command)
        assert {*fewer["changed"], *last["changed"]} == set(more["changed"])
        (scale,) = run(capsys, "scale")
        assert [found["partitions"] for found in scale["nodes"]] == [271]
        assert main(["scale", "--to", "2", "--run", "false", "--within", "5"]) == 1
        assert "false has ended with exit code 1" in capsys.readouterr().err
        assert main(["scale", "--to", "2", "--run", "true", "--within", "1"]) == 3
        assert "there are not 2 nodes that serve their share, 1 s after true" in capsys.readouterr().err
    finally:
        for file in tmp_path.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)


def test_snapshots_are_taken_looked_at_and_restored(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    run(capsys, "schedule", "counter", "saved", "total=5")
    (first,) = run(capsys, "snapshot", place)
    assert first["jobs"] == len(run(capsys, "jobs"))
    (second,) = run(capsys, "snapshot", place, "--keep", "1")
    assert run(capsys, "snapshots", "list", place) == [second]
    (verdict,) = run(capsys, "snapshots", "verify", place)
    assert (verdict["whole"], verdict["jobs"]) == (True, second["jobs"])
    exported = run(capsys, "snapshots", "export", place)
    (saved,) = [line for line in exported if line["kind"] == "job" and line["id"] == "saved"]
    assert (saved["state"], saved["parameters"]) == ({"total": 5}, {"total": 5})
    assert main(["snapshots", "export", place, "--to", str(tmp_path / "jobs.jsonl")]) == 0
    assert len((tmp_path / "jobs.jsonl").read_text().splitlines()) == len(exported)
    (scheduled,) = run(capsys, "snapshot", place, "--every", "1h", "--keep", "2")
    assert scheduled == {"scheduled": f"tenure-snapshots {place}"}
    deadline = time.monotonic() + 30
    while len(run(capsys, "snapshots", "list", place)) < 2:
        assert time.monotonic() < deadline
    assert run(capsys, "snapshot", place, "--stop") == [{"unscheduled": f"tenure-snapshots {place}"}]
    assert main(["restore", place]) == 1
    assert "--replace" in capsys.readouterr().err
    run(capsys, "publish", "saved", '{"n": 1}')
    (restored,) = run(capsys, "restore", place, "--name", second["name"], "--replace")
    assert restored["jobs"] == second["jobs"]
    assert run(capsys, "ask", "saved", '{"n": 2}') == [7]
    for pack in (tmp_path / "backups" / "packs").rglob("*-0"):
        pack.write_bytes(pack.read_bytes()[:-1])
    assert main(["snapshots", "verify", place]) == 1
    assert main(["restore", place, "--name", "nonsense"]) == 1
    assert main(["snapshots", "list", str(tmp_path / "nothing")]) == 0
