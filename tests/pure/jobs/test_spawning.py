"""Commands that start nodes, or see to their number."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import trio

import tenure
from tenure.jobs.processes import end_all, outlives
from tenure.jobs.spawning import filled_in, run_hook, spawned_by, split

CLUSTER = "tenure@127.0.0.1:1"
TELLING = "import os, sys; print(os.environ['TENURE_CLUSTER'], *sys.argv[1:])"


def test_a_text_is_split_as_a_shell_does() -> None:
    assert split("tenure node 'my app.py' --name {name}") == ["tenure", "node", "my app.py", "--name", "{name}"]
    assert split(("tenure", "node", "my app.py")) == ["tenure", "node", "my app.py"]
    with pytest.raises(tenure.Mistake, match="is no command"):
        split("tenure 'node")


def test_only_what_is_known_is_filled_in() -> None:
    assert filled_in(["a{name}", "{nodes}", '{"json": {}}'], {"name": "n"}) == ["an", "{nodes}", '{"json": {}}']
    with pytest.raises(tenure.Mistake, match="at least a program"):
        filled_in([], {})


async def test_a_spawned_process_has_a_log_the_cluster_and_a_name_of_its_own(tmp_path: Path) -> None:
    first = await spawned_by([sys.executable, "-c", TELLING, "{name}", "{cluster}"], CLUSTER, tmp_path)
    second = await spawned_by([sys.executable, "-c", "import sys; sys.exit('no such app')"], CLUSTER, tmp_path)
    with trio.fail_after(20):
        while first.ended() is None or second.ended() is None:  # noqa: ASYNC110  # a process sets no event
            await trio.sleep(0.02)
    assert (first.ended(), second.ended()) == (0, 1)
    assert first.last_words() == f"{CLUSTER} {first.log_file.stem} {CLUSTER}"
    assert second.last_words() == "no such app"
    assert first.log_file != second.log_file


async def test_those_that_have_ended_are_let_go_by_those_that_come_after(tmp_path: Path) -> None:
    first = await spawned_by([sys.executable, "-c", "print('x' * 100_000)"], CLUSTER, tmp_path)
    with trio.fail_after(20):
        while psutil.Process(first.pid).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110  # a process sets no event
            await trio.sleep(0.02)
    await spawned_by([sys.executable, "-c", ""], CLUSTER, tmp_path)
    assert not psutil.pid_exists(first.pid)
    assert first.ended() == 0
    assert first.last_words() == "x" * 500


async def test_a_spawned_process_can_say_by_whom_and_that_of_another_is_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_SPAWNED_BY", "another")
    telling = [sys.executable, "-c", "import os; print('by', os.environ['TENURE_SPAWNED_BY'])"]
    ours, nobodys = await spawned_by(telling, CLUSTER, tmp_path, "me"), await spawned_by(telling, CLUSTER, tmp_path)
    with trio.fail_after(20):
        while ours.ended() is None or nobodys.ended() is None:  # noqa: ASYNC110  # a process sets no event
            await trio.sleep(0.02)
    assert (ours.last_words(), nobodys.last_words()) == ("by me", "by")


async def test_what_a_run_spawns_outlives_the_run_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lifecycle controller starts nodes in a run of its own, whose end kills all that it has left behind."""
    for name, value in (("TENURE_RUN", "outer"), ("TENURE_OUTLIVES", "older"), ("TENURE_RUN_FILE", "x")):
        monkeypatch.setenv(name, value)
    waiting = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    spawned = await spawned_by(waiting, CLUSTER, tmp_path)
    left_behind = subprocess.Popen(waiting, stdout=subprocess.DEVNULL)  # noqa: ASYNC220  # it is started, not waited for
    others = {child.pid for child in psutil.Process().children(recursive=True)} - {spawned.pid, left_behind.pid}
    try:
        with trio.fail_after(20):
            while spawned.last_words() != "up":  # noqa: ASYNC110  # a process sets no event
                await trio.sleep(0.02)
        assert [outlives(spawned.pid, tag) for tag in ("outer", "older", "other")] == [True, True, False]
        assert await trio.to_thread.run_sync(lambda: end_all("outer", spare=others))
        assert left_behind.wait(timeout=10) == -9
        assert spawned.ended() is None
        assert not {"TENURE_RUN", "TENURE_RUN_FILE"} & psutil.Process(spawned.pid).environ().keys()
    finally:
        psutil.Process(spawned.pid).kill()
        while spawned.ended() is None:  # noqa: ASYNC110  # a process sets no event
            await trio.sleep(0.02)


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(tenure.Mistake, match="no-such-program can't be started: No such file"):
        await spawned_by(["no-such-program"], CLUSTER, tmp_path)
    with pytest.raises(tenure.HookFailed, match="no-such-program"):
        await run_hook(["no-such-program", "{nodes}"], CLUSTER, 3)


async def test_a_hook_gets_the_number_and_its_failure_is_told(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    await run_hook(["sh", "-c", f"echo {{nodes}} $TENURE_CLUSTER > {file}"], CLUSTER, 3)
    assert file.read_text() == f"3 {CLUSTER}\n"
    with pytest.raises(tenure.HookFailed, match="exit code 4: no quota for 3"):
        await run_hook(["sh", "-c", "echo no quota for {nodes}; exit 4"], CLUSTER, 3)


async def test_a_hook_is_not_waited_for_longer_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has started in the background holds its output open."""
    monkeypatch.setattr("tenure.jobs.spawning.HOOK_TIMEOUT_S", 5.0)
    with trio.fail_after(4):
        await run_hook(["sh", "-c", "sleep 10 & echo started"], CLUSTER, 3)
        with pytest.raises(tenure.HookFailed, match="exit code 4: no quota"):
            await run_hook(["sh", "-c", "sleep 10 & echo no quota; exit 4"], CLUSTER, 3)
