"""Children of a process that heeds signals end when they are told to, and its own lifelines end with it."""

import subprocess
import sys

import pytest

HEEDS = """
import multiprocessing, os, signal, sys, time, warnings
import trio
from tenure.signals import told_to_stop

warnings.simplefilter("ignore")
fork = multiprocessing.get_context("fork")


def square(x):
    return x * x


def terminated():
    child = fork.Process(target=time.sleep, args=(60,))
    child.start()
    time.sleep(0.2)
    child.terminate()
    child.join(3)
    code = child.exitcode
    child.kill()
    return code


def pools():
    for _ in range(6):
        with fork.Pool(3) as pool:
            list(pool.imap_unordered(square, range(4)))
    return "6 pools"


def terminated_at_once():
    # Before they have got as far as hearing anything.
    children = []
    for _ in range(30):
        pid = os.fork()
        if not pid:
            time.sleep(60)
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        children.append(pid)
    return {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children}


async def main():
    async with trio.open_nursery() as nursery:
        async def heed(task_status):
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
                task_status.started()
                async for number, again in told_to_stop(received):
                    print("the parent heard", int(number), flush=True)
                    nursery.cancel_scope.cancel()

        await nursery.start(heed)
        await trio.testing.wait_all_tasks_blocked()
        print(await trio.to_thread.run_sync(terminated), flush=True)
        with trio.move_on_after(60) as waiting:
            print(await trio.to_thread.run_sync(terminated_at_once, abandon_on_cancel=True), flush=True)
            print(await trio.to_thread.run_sync(pools, abandon_on_cancel=True), flush=True)
        if waiting.cancelled_caught:
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep(5)


import trio.testing
trio.run(main)
"""


def test_forked_children_end_by_signal_and_the_parent_still_hears_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEEDS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )
    assert done.stdout.split("\n") == ["-15", "{-15}", "6 pools", "the parent heard 15", ""], done.stderr


LIFELINE = """
import os, sys, time
from pathlib import Path
from tenure.members.launch import spawn

process = spawn(["sleep", "60"], Path(sys.argv[1]))
if os.fork() == 0:
    os.close(1)
    time.sleep(30)
    os._exit(0)
print(process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_member_ends_with_its_parent_also_while_a_fork_of_that_lives(tmp_path: object) -> None:
    import psutil

    command = [sys.executable, "-c", LIFELINE, f"{tmp_path}/log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        member = psutil.Process(int(parent.stdout.readline()))
        forks = [child for child in psutil.Process(parent.pid).children() if child.pid != member.pid]
        parent.kill()
        parent.wait()
        _gone, alive = psutil.wait_procs([member], timeout=5)
        for fork in forks:
            fork.kill()
        assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
