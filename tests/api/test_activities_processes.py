"""Real commands as activities, on the memory grid: one process holds grid, nodes and wrappers. In real time."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.jobs import ProcessJob
from tenure.jobs.processes import marked
from tenure.testing import Cluster

WITHIN_S = 20.0


@pytest.fixture
async def real() -> AsyncIterator[tuple[Cluster, tenure.Client]]:
    async with Cluster(nodes=1, partitions=4, activities="real") as cluster, cluster.client() as client:
        yield cluster, client


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


REPORTING = f"import sys; sys.path.insert(0, {str(Path(tenure.__file__).parents[1])!r}); "
REPORTING += "from tenure.jobs.reporting import *; reporter = Reporter.from_environment(); import os, time; "


async def shown(client: tenure.Client, id: str = "a") -> tenure.ActivityView:
    return (await client.describe(id))["activities"][-1]


async def until(
    client: tenure.Client, done: Callable[[tenure.ActivityView], Any], id: str = "a"
) -> tenure.ActivityView:
    with trio.fail_after(WITHIN_S):
        while True:
            try:
                found = (await client.describe(id))["activities"]
            except tenure.UnknownJob:
                found = []  # its owner has not seen it yet
            if found and done(found[-1]):
                return found[-1]
            await trio.sleep(0.02)


async def ended(client: tenure.Client, id: str = "a") -> tenure.ActivityView:
    return await until(client, lambda activity: activity["ended_ms"], id)


Real = tuple[Cluster, tenure.Client]


async def test_a_command_runs_and_its_exit_code_decides(real: Real) -> None:
    _, client = real
    await client.schedule(
        ProcessJob,
        id="a",
        argv=["sh", "-c", "cat >out; echo $DAY >>out; pwd >>out; cp out /dev/stdout"],
        env={"DAY": "monday"},
        stdin="hello\n",
    )
    assert (await ended(client))["status"] == "succeeded"
    await client.schedule(ProcessJob, id="b", argv=["sh", "-c", "echo one; echo two >&2; exit 7"], attempts_max=1)
    activity = await ended(client, "b")
    assert (activity["status"], activity["error"]) == ("failed", "ExitCode: it ended with exit code 7: two")
    state = await client.state("b")
    assert (state.last.status, state.last.error) == ("failed", "ExitCode: it ended with exit code 7: two")


async def test_two_tests_beside_each_other_leave_each_other_alone() -> None:
    """On one machine, as when tests run in parallel: each ends its own processes, not those of the other."""
    async with (
        Cluster(nodes=1, partitions=4, activities="real") as here,
        Cluster(nodes=1, partitions=4, activities="real") as there,
        here.client() as ours,
        there.client() as theirs,
    ):
        for client in (ours, theirs):
            await client.schedule(ProcessJob, id="a", argv=["sleep", "60"])
            await until(client, lambda activity: activity["status"] == "running")
        assert (await shown(ours))["tag"] != (await shown(theirs))["tag"]
        await ours.cancel("a")
        assert (await ended(ours))["status"] == "cancelled"
        assert (await shown(theirs))["status"] == "running"


async def test_its_output_is_kept_and_bounded(real: Real, tmp_path: Path) -> None:
    _, client = real
    where = tmp_path / "where"
    code = f"import os; open({str(where)!r}, 'w').write(os.getcwd()); [print(n) for n in range(100_000)]"
    await client.schedule(ProcessJob, id="a", argv=python(code), log_bytes_max=100_000)
    assert (await ended(client))["status"] == "succeeded"
    folder = Path(where.read_text())
    assert folder.name == (await shown(client))["tag"]
    logs = [folder / "stdout.log.1", folder / "stdout.log"]
    kept = "".join(log.read_text() for log in logs)
    assert 50_000 <= len(kept) <= 100_000
    assert kept.endswith("99998\n99999\n")
    assert os.stat(folder).st_mode & 0o077 == 0


async def test_what_can_not_run_is_refused_by_name_before_it_is_launched(real: Real, tmp_path: Path) -> None:
    _, client = real
    (tmp_path / "operator.py").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "script").write_text("#!/usr/bin/pyhton\n")
    (tmp_path / "script").chmod(0o755)
    for n, (parameters, error) in enumerate(
        [
            (
                {"argv": ["pyhton3"]},
                "CommandNotFound: no command 'pyhton3' is in PATH on this node; did you mean 'python3'?",
            ),
            ({"argv": ["./operater.py"], "cwd": str(tmp_path)}, f"did you mean '{tmp_path}/operator.py'?"),
            ({"argv": [str(tmp_path / "operator.py")]}, f"NotExecutable: {tmp_path}/operator.py is not executable"),
            ({"argv": [str(tmp_path)]}, f"NotExecutable: {tmp_path} is a folder"),
            ({"argv": [str(tmp_path / "script")]}, "asks for the interpreter /usr/bin/pyhton in its first line"),
            ({"argv": ["ls"], "cwd": f"{tmp_path}x"}, f"NoSuchFolder: there is no folder {tmp_path}x on this node"),
            ({"argv": ["ls"], "cwd": "relative"}, "NoSuchFolder: cwd 'relative' is not absolute"),
            ({"argv": ["./ls"]}, "CommandNotFound: './ls' is relative, and no cwd is given"),
            ({"argv": []}, "WrongWork: argv is empty"),
        ]
    ):
        await client.schedule(ProcessJob, id=str(n), **parameters)
        activity = await ended(client, str(n))
        assert activity["status"] == "failed"
        assert error in activity["error"]
        assert activity["attempt"] == 1
        assert activity["started_ms"] == 0


async def test_a_process_reports_with_a_few_lines(real: Real) -> None:
    _, client = real
    code = REPORTING + (
        "reporter.started(ui='http://localhost:4040'); reporter.progress(1, 3); reporter.metrics(rows=5);"
        "reporter.stage('parse', 1, 2, batch=3); reporter.note('app', 17); reporter.confirm();"
        "reporter.result({'rows': 5, 'notes': reporter.run.notes, 'work': reporter.run.work['stdin'],"
        " 'clean': 'TENURE_RUN_FILE' not in os.environ})"
    )
    await client.schedule(ProcessJob, id="a", argv=python(code), stdin="x")
    activity = await ended(client)
    assert activity["error"] == ""
    assert activity["result"] == {"rows": 5, "notes": {}, "work": "x", "clean": True}
    assert activity["progress"] == [1, 3]
    details = activity["details"]
    assert details["info"] == {"ui": "http://localhost:4040"}
    assert details["metrics"] == {"rows": 5}
    assert details["stage"] == {"name": "parse", "number": 1, "of": 2, "batch": 3}


async def test_any_language_can_report(real: Real) -> None:
    _, client = real
    script = """
    eval "exec 3>&$TENURE_REPORT_FD" 2>/dev/null || exec 3>/proc/self/fd/$TENURE_REPORT_FD
    echo 'nonsense' >&3; echo '[1]' >&3
    echo '{"progress": [2, 4]}' >&3; echo '{"result": "done"}' >&3
    """
    await client.schedule(ProcessJob, id="a", argv=["bash", "-c", script])
    activity = await ended(client)
    assert (activity["error"], activity["progress"], activity["result"]) == ("", [2, 4], "done")


async def test_an_exception_is_the_error_with_its_traceback(real: Real) -> None:
    _, client = real
    code = REPORTING + "\ndef load():\n  raise KeyError('rows')\nwith reporter:\n  load()\n"
    await client.schedule(ProcessJob, id="a", argv=python(code), attempts_max=1)
    assert (await ended(client))["error"] == "KeyError: 'rows'"
    await client.schedule(ProcessJob, id="b", argv=python(REPORTING + "reporter.error('NoTable: x', final=True)"))
    activity = await ended(client, "b")
    assert (activity["error"], activity["attempt"]) == ("NoTable: x", 1)


async def test_attempts_follow_and_know_the_notes(real: Real) -> None:
    _, client = real
    code = REPORTING + (
        "n = reporter.run.notes.get('n', 0); reporter.note('n', n + 1); os.kill(os.getpid(), 9) if n < 2 else 0;"
        "reporter.result(n)"
    )
    await client.schedule(ProcessJob, id="a", argv=python(code), first_delay_s=0.05)
    activity = await ended(client)
    assert (activity["status"], activity["result"], activity["attempt"]) == ("succeeded", 2, 3)
    assert "SIGKILL" not in activity["error"]


async def test_it_goes_on_while_nodes_come_and_go(real: Real, tmp_path: Path) -> None:
    cluster, client = real
    log = tmp_path / "starts"
    code = f"import time; open({str(log)!r}, 'a').write('x'); time.sleep(4)"
    await client.schedule(ProcessJob, id="a", argv=python(code))
    await until(client, lambda activity: log.exists())
    await cluster.add_node()
    await cluster.kill(0)
    await until(client, lambda activity: True)
    await cluster.add_node()
    await cluster.drain(1)
    activity = await ended(client)
    assert (activity["status"], activity["attempt"]) == ("succeeded", 1)
    assert log.read_text() == "x"


STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
FAMILY = """
import os, subprocess, sys, time
child = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
subprocess.Popen(child)
subprocess.Popen(child, start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("code", [STUBBORN, FAMILY, "import time; print('up', flush=True); time.sleep(600)"])
async def test_nothing_survives_a_cancel(real: Real, code: str) -> None:
    _, client = real
    await client.schedule(ProcessJob, id="a", argv=python(code), cancel_deadline_s=1)
    activity = await until(client, lambda activity: activity["status"] == "running")
    tag = activity["tag"]
    with trio.fail_after(WITHIN_S):
        while len(marked(tag)) < (3 if code == FAMILY else 1):  # noqa: ASYNC110  # only looking shows it
            await trio.sleep(0.05)
    await trio.sleep(0.3)
    await client.cancel("a")
    assert (await ended(client))["status"] == "cancelled"
    assert marked(tag) == []


async def test_a_reporter_hears_of_the_cancel_first(real: Real) -> None:
    _, client = real
    code = REPORTING + (
        "import signal; signal.signal(15, lambda *_: os._exit(9));"
        "reporter.on_cancel(lambda: (reporter.metrics(asked=1), reporter.result('tidy'), os._exit(0)));"
        "reporter.progress(0, 1); time.sleep(600)"
    )
    await client.schedule(ProcessJob, id="a", argv=python(code), cancel_deadline_s=10)
    await until(client, lambda activity: activity["progress"])
    await client.cancel("a")
    activity = await ended(client)
    assert (activity["status"], activity["details"]) == ("cancelled", {"metrics": {"asked": 1}})


async def test_unschedule_leaves_nothing(real: Real) -> None:
    _, client = real
    await client.schedule(ProcessJob, id="a", argv=python(STUBBORN), cancel_deadline_s=0.5)
    tag = (await until(client, lambda activity: activity["status"] == "running"))["tag"]
    await client.unschedule("a")
    assert marked(tag) == []


async def test_it_takes_too_long(real: Real) -> None:
    _, client = real
    await client.schedule(ProcessJob, id="a", argv=["sleep", "600"], run_timeout_s=1, attempts_max=1)
    activity = await ended(client)
    assert activity["error"] == "TimedOut: it took longer than 1 s"


async def test_a_wrapper_that_fails_costs_its_attempt_and_not_the_test(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = real

    async def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("tenure.jobs.wrapper._run", broken)
    await client.schedule(ProcessJob, id="a", argv=["true"], attempts_max=1)
    assert (await ended(client))["error"] == "WrapperFailed: RuntimeError: broken"


async def test_a_killed_command_takes_all_that_it_started_with_it(real: Real) -> None:
    _, client = real
    await client.schedule(ProcessJob, id="a", argv=python(FAMILY), attempts_max=1)
    tag = (await until(client, lambda activity: activity["status"] == "running"))["tag"]
    with trio.fail_after(WITHIN_S):
        while len(family := marked(tag)) < 3:  # noqa: ASYNC110  # only looking shows it
            await trio.sleep(0.05)
    parent = next(process for process in family if process.parent() is None or process.parent() not in family)
    os.kill(parent.pid, signal.SIGKILL)
    assert "SIGKILL" in (await ended(client))["error"]
    assert marked(tag) == []


async def test_nothing_survives_the_cluster() -> None:
    async with Cluster(nodes=1, partitions=4, activities="real") as cluster, cluster.client() as client:
        await client.schedule(ProcessJob, id="a", argv=python(STUBBORN))
        tag = (await until(client, lambda activity: activity["status"] == "running"))["tag"]
        assert marked(tag)
    assert marked(tag) == []
