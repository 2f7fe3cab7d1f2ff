"""SIGTERM and a closed terminal give commands up, and what they have begun is taken back; with real processes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tenure.cli import app
from tenure.cli.giving_up import SAME_SIGNAL_S

PROGRAM = """
import sys, time, trio
from tenure.cli import app

def command(tokens):
    if "blocking" in tokens:
        try:
            print("begun", flush=True)
            time.sleep(60)
        finally:
            print("taken back", flush=True)
    trio.run(work, tokens)

async def work(tokens):
    try:
        print("begun", flush=True)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(trio.sleep, 60)
    finally:
        with trio.move_on_after(60 if "stubborn" in tokens else 0.2, shield=True):
            print("giving up", flush=True)
            await trio.sleep_forever()
        print("taken back", flush=True)

app._run = command
sys.exit(app.main(sys.argv[1:]))
"""
Process = subprocess.Popen[str]


def ignoring(*ignored: int) -> Callable[[], None]:
    """Before a process begins: as `nohup`, and as shells do for what scripts put into the background."""

    def begin() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    return begin


@contextmanager
def begun(*arguments: str, ignored: tuple[int, ...] = ()) -> Iterator[Process]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ignoring(*ignored),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def ended(process: Process) -> tuple[int, list[str], str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out.split("\n")[:-1], err


GIVEN_UP = (1, ["giving up", "taken back"], "tenure: interrupted.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_was_begun_is_taken_back(number: int) -> None:
    with begun("drain", "node-1") as process:
        process.send_signal(number)
        assert ended(process) == GIVEN_UP


def test_also_where_ctrl_c_is_ignored() -> None:
    with begun("drain", "node-1", ignored=(signal.SIGINT,)) as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == GIVEN_UP


@pytest.mark.parametrize("ignored", [(), (signal.SIGINT,)])
def test_also_where_nothing_is_awaited(ignored: tuple[int, ...]) -> None:
    with begun("drain", "blocking", ignored=ignored) as process:
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (1, ["taken back"], "tenure: interrupted.\n")


def test_a_closed_terminal_may_be_told_of_twice() -> None:
    with begun("drain", "node-1") as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)  # (two that are alike may arrive as one)
        assert ended(process) == GIVEN_UP


def test_who_was_told_before_ends_at_once() -> None:
    with begun("drain", "stubborn") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "giving up\n"
        time.sleep(SAME_SIGNAL_S + 0.2)
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == -signal.SIGTERM


def test_nohup_stays_as_it_is() -> None:
    with begun("drain", "node-1", ignored=(signal.SIGHUP,)) as process:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == GIVEN_UP


@pytest.mark.parametrize(("name", "heeds"), [("node", True), ("member", True), ("dev", True), ("drain", False)])
def test_commands_that_heed_signals_themselves_are_left_alone(
    name: str, heeds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(app, "_run", lambda tokens: seen.append(signal.getsignal(signal.SIGTERM)))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    assert before[0] is signal.SIG_DFL
    assert app.main([name]) == 0
    assert (seen[0] is signal.SIG_DFL) is heeds
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before
