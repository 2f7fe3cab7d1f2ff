"""The warden: with a clock and a node of the test's, and beside real processes that hang in C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import tenure
from tenure.nodes.warden import ARMED, END_SIGNAL, ENDING, TICK_S, Warden, stood_of
from tenure.scheduler.hangs import Hang
from tenure.scheduler.noted import JOB, NO_NOTES, NOTES, TURN, Note, job_note, read_notes, turn_note

NOTE = Note(7, "hog-1", "hog", "hog-1/1/x.1.0.0")
TURNS = Path(tenure.__file__).parent / "scheduler" / "turns.py"
STACK = f"""Current thread 0x00007f0000000000 (most recent call first):
  File "/srv/app.py", line 12 in crunch
  File "/srv/app.py", line 20 in on_message
  File "{TURNS}", line 150 in _call
"""


class Ended(Exception):
    pass


class Home:
    """A node seen from outside, its warden, and all that this does."""

    def __init__(self, hung_after_s: float = 10.0, drain_deadline_s: float = 30.0) -> None:
        self.now_s, self.taken_mib, self.limit_mib = 100.0, 50.0, 1000.0
        self.armed, self.ticks, self.told, self.waited_s = ARMED, 0, 0, 5.0
        self.is_stopped, self.is_main = False, True
        self.noted: Note | None = NOTE
        self.stack = STACK
        self.did: list[str] = []
        self.said: list[tuple[str, float, str, str]] = []
        self.words: list[Hang | None] = []
        self.warden = Warden(
            self,
            hung_after_s,
            drain_deadline_s,
            say=lambda level, text, stack: self.said.append((level, round(self.now_s - 100, 1), text, stack)),
            stack=lambda: self.stack,
            words_of=lambda node: self._leave,
            is_stopped=lambda: self.is_stopped,
            waited_s=lambda: self.waited_s,
            is_main=lambda: self.is_main,
            freeze=lambda: self.did.append("freeze"),
            end=self._end,
            footprint=self,
        )
        self.goes(1, ticks=True)

    def state(self) -> int:
        return self.armed

    def seen(self) -> tuple[int, int]:
        return self.ticks, 0

    def name(self) -> str:
        return "a"

    def note(self) -> Note | None:
        return self.noted

    def told_to_stop(self) -> int:
        return self.told

    def share(self) -> float:
        return self.taken_mib / self.limit_mib

    def excess_mib(self) -> float:
        return self.taken_mib if self.share() > 1 else 0.0

    def _leave(self, word: Hang | None) -> threading.Event:
        self.words.append(word)
        done = threading.Event()
        done.set()
        return done

    def _end(self) -> None:
        self.did.append("end")
        raise Ended

    def goes(self, seconds: float, ticks: bool = False) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            self.ticks += ticks
            self.warden.tick(self.now_s)

    def until_the_end(self) -> float:
        began_s = self.now_s
        with pytest.raises(Ended):
            self.goes(1000)
        return self.now_s - began_s


def test_a_node_that_comes_to_run_is_left_alone() -> None:
    home = Home()
    home.goes(100, ticks=True)
    assert (home.said, home.words, home.did) == ([], [], [])


def test_what_never_returns_is_left_word_of_and_named_and_ended() -> None:
    home = Home()
    assert home.until_the_end() == pytest.approx(10, abs=0.3)
    first, last = home.words
    assert first == Hang("a", 7, "hog-1", NOTE.turn, "", pytest.approx(9.5, abs=0.2), False)  # type: ignore[arg-type]
    assert last is not None
    assert (last.ended, last.where, last.turn) == (True, "/srv/app.py:12 in crunch", NOTE.turn)
    assert [level for level, *_ in home.said] == ["warning"] * 3 + ["error"]
    _, _, text, stack = home.said[-1]
    assert text.startswith("job 'hog-1' (hog) has blocked the whole of this node for 10.")
    assert "at /srv/app.py:12 in crunch" in text
    assert stack == STACK
    assert home.did == ["end"]


def test_what_comes_back_takes_its_word_back() -> None:
    home = Home()
    home.goes(3)
    home.goes(10, ticks=True)
    [word, none] = home.words
    assert word is not None
    assert none is None
    assert home.said[-1][0] == "info"
    assert not home.did


def test_without_a_limit_nothing_is_ended() -> None:
    home = Home(hung_after_s=0)
    home.goes(1000)
    assert not home.did
    assert len(home.said) >= 5


def test_a_process_that_is_stopped_or_a_machine_that_slept_is_not_hung() -> None:
    home = Home()
    home.is_stopped = True
    home.goes(1000)
    home.is_stopped = False
    for _ in range(20):
        home.now_s += 60
        home.warden.tick(home.now_s)
        home.goes(0.2, ticks=True)
    home.armed = 0
    home.goes(1000)
    assert (home.said, home.words, home.did) == ([], [], [])


def test_one_that_gets_no_processor_has_twice_as_long() -> None:
    home = Home()
    for _ in range(180):
        home.waited_s += TICK_S
        home.goes(TICK_S)
    assert not home.did
    assert home.until_the_end() == pytest.approx(1, abs=0.3)


def test_much_work_of_the_nodes_own_has_longer() -> None:
    home = Home()
    home.noted, home.stack = None, 'Current thread 0x1:\n  File "/srv/engine.py", line 1 in f\n'
    assert home.until_the_end() == pytest.approx(60, abs=0.5)
    assert home.words == []
    assert "nothing in this node has come to run for 60." in home.said[-1][2]


def test_an_async_handler_is_seen_by_its_stack() -> None:
    home = Home()
    home.noted = None
    assert home.until_the_end() == pytest.approx(10, abs=0.3)
    assert home.words == []
    assert "at /srv/app.py:12 in crunch" in home.said[-1][2]


def test_a_blocking_turn_that_keeps_the_lock_is_not_held_against_the_turn_in_the_loop() -> None:
    home = Home()
    home.is_main, home.stack = False, 'Current thread 0x1:\n  File "/srv/engine.py", line 1 in f\n'
    assert home.until_the_end() == pytest.approx(10, abs=0.3)
    assert home.words == []


@pytest.mark.parametrize(
    ("before_mib", "ends", "alone"), [(50.0, True, True), (600.0, True, False), (1001.0, False, False)]
)
def test_who_eats_memory_is_stopped_at_once_and_then_ended(before_mib: float, ends: bool, alone: bool) -> None:
    home = Home(hung_after_s=0)
    home.taken_mib = before_mib
    home.goes(1, ticks=True)
    home.goes(2)
    home.taken_mib = 1050.0
    if not ends:
        home.goes(100)
        assert not home.did
        return
    assert home.until_the_end() < 0.2
    assert home.did == ["freeze", "end"]
    word = home.words[-1]
    assert word is not None
    assert (word.ended, word.memory_mib, word.alone) == (True, 1050.0, alone)
    assert "has grown to 1,050 MiB" in home.said[-1][2]


def test_told_to_stop_it_is_ended_after_its_deadline_and_told_again_at_once() -> None:
    home = Home(hung_after_s=0, drain_deadline_s=5)
    home.goes(2)
    home.told = 1
    assert home.until_the_end() == pytest.approx(5, abs=0.3)
    assert "told to stop, and did not hear it" in home.said[-1][2]
    home = Home(hung_after_s=0, drain_deadline_s=100)
    home.told = 1
    home.goes(3)
    home.told = 2
    assert home.until_the_end() < 0.3


def test_a_watchdog_that_is_at_it_is_left_to_it_for_a_while() -> None:
    home = Home()
    home.armed = ENDING
    home.goes(11)
    assert not home.did
    home.until_the_end()
    assert home.said == []


def test_notes_are_read_as_they_were_made() -> None:
    board = bytearray(NO_NOTES)
    assert read_notes(board) is None
    board[JOB] = job_note(7, "jöb", "type")
    assert read_notes(board) == Note(7, "jöb", "type", "")
    board[TURN] = turn_note(7, "jöb", "jöb/1/x")
    assert read_notes(board) == Note(7, "jöb", "type", "jöb/1/x")
    board[JOB] = job_note(8, "jöb", "type")
    assert read_notes(board) == Note(8, "jöb", "type", "")
    board[JOB] = job_note(8, "x" * 500, "type")
    assert read_notes(board) is None
    board[NOTES] = NO_NOTES
    assert read_notes(board) is None


def test_a_stack_tells_the_applications_line() -> None:
    stood = stood_of(STACK)
    assert (stood.where, stood.in_turn) == ("/srv/app.py:12 in crunch", True)
    assert stood_of("") == ("", False, "")


# -- real processes -------------------------------------------------------------------------------

NODE = """
import itertools, json, os, signal, sys, threading, time
from tenure.nodes.warden import fork_warden
from tenure.scheduler.noted import JOB, job_note

def say(level, text, stack):
    print(json.dumps([level, text, stack]), file=sys.stderr, flush=True)

def words_of(node):
    def leave(hang):
        done = threading.Event()
        done.set()
        if sys.argv[4] == "fails" and hang and not hang.ended and not leave.failed:
            leave.failed = True
            raise RuntimeError("OddWord")
        word = hang and [hang.job, hang.ended, hang.where, hang.memory_mib > 0]
        if sys.argv[4] != "unread":
            print(json.dumps(["word", node, word]), file=sys.stderr, flush=True)
        return done
    leave.failed = False
    return leave

beside = fork_warden(float(sys.argv[2]), 1.0, float(sys.argv[3]), words_of, say)
beside.arm()
beside.named("node-1")

def ticks():
    while True:
        time.sleep(0.05)
        beside.tick()

open("/proc/self/comm", "wb").write(os.fsencode(sys.argv[4]))
threading.Thread(target=ticks, daemon=True).start()
signal.set_wakeup_fd(beside.heard.fileno(), warn_on_full_buffer=False)
signal.signal(signal.SIGTERM, lambda number, frame: None)
time.sleep(0.5)
beside.board[JOB] = job_note(3, "j", "t")

def on_message():
    what = sys.argv[1]
    if what == "loop":
        end_s = time.monotonic() + 3
        while time.monotonic() < end_s:
            pass
    if what == "short":
        sum(range(10**8))
    if what == "c":
        sum(range(10**13))
    if what == "memory":
        list(map("x".join, itertools.repeat(["abc"] * 300)))
    if what == "blocked":
        import ctypes
        ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
    if what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)

print("begun", flush=True)
on_message()
time.sleep(0.5)
beside.disarm()
time.sleep(0.5)
print("done", flush=True)
"""


CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""In it a command is the first process, as in a container that has no other for that (`init: false`)."""


def is_there_a_container() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*CONTAINER, "true"], check=False).returncode == 0


class Process:
    def __init__(
        self,
        folder: Path,
        what: str,
        hung_after_s: float = 1.5,
        memory_max_mib: float = 0,
        *,
        is_first: bool = False,
        name: bytes = b"",
        log: int | None = None,
    ) -> None:
        script = folder / "node.py"
        script.write_text(NODE)
        self._said = folder / "said"
        before = CONTAINER if is_first else []
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*before, sys.executable, str(script), what, str(hung_after_s), str(memory_max_mib), name or "node"],
                stdout=subprocess.PIPE,
                stderr=said if log is None else log,
                env={**os.environ, "PYTHONPATH": str(Path(tenure.__file__).parents[1])},
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"begun\n"
        *_, self.warden = psutil.Process(self.process.pid).children(recursive=True)

    def said(self) -> list[list[Any]]:
        return [json.loads(line) for line in self._said.read_text().splitlines() if line.startswith("[")]

    def ends(self) -> int:
        code = self.process.wait(40)
        self.close()
        assert not psutil.wait_procs([self.warden], timeout=10)[1]
        return code

    def close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def begun() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.process.kill()
        process.process.wait()
        process.close()


@pytest.mark.parametrize("what", ["c", "blocked"])
def test_a_process_that_hangs_in_c_with_the_lock_is_ended_and_named(
    tmp_path: Path, begun: list[Process], what: str
) -> None:
    begun.append(process := Process(tmp_path, what))
    assert process.ends() == -signal.SIGKILL
    said = process.said()
    words = [entry for entry in said if entry[0] == "word"]
    line = NODE.splitlines().index(
        "        sum(range(10**13))"
        if what == "c"
        else "        ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)"
    )
    where = f"{tmp_path / 'node.py'}:{line + 1} in on_message"
    assert words[0] == ["word", "node-1", ["j", False, "", False]]
    assert words[-1] == ["word", "node-1", ["j", True, where, False]]
    level, text, stack = said[-1]
    assert level == "error"
    assert text.startswith("job 'j' (t) has blocked the whole of this node")
    assert "in on_message" in stack


def test_one_of_an_odd_name_is_ended_as_well(tmp_path: Path, begun: list[Process]) -> None:
    """The system keeps 15 bytes of a name, and may cut it within a letter."""
    begun.append(process := Process(tmp_path, "c", name="der-groesste-né".encode()[:15]))
    assert process.ends() == -signal.SIGKILL


def test_a_warden_that_fails_says_so_and_goes_on(tmp_path: Path, begun: list[Process]) -> None:
    begun.append(process := Process(tmp_path, "c", name=b"fails"))
    assert process.ends() == -signal.SIGKILL
    [told] = [text for level, text, _ in process.said() if level == "warning" and "OddWord" in text]
    assert told == "this node's warden has failed, and goes on: RuntimeError('OddWord')"


def test_one_whose_log_nobody_reads_is_ended_as_well_and_its_warden_with_it(
    tmp_path: Path, begun: list[Process]
) -> None:
    unread, log = os.pipe()
    os.set_blocking(log, False)
    for size in (65536, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(log, b"x" * size)
    os.set_blocking(log, True)
    try:
        begun.append(process := Process(tmp_path, "c", name=b"unread", log=log))
        assert process.ends() == -signal.SIGKILL
    finally:
        os.close(unread)
        os.close(log)


@pytest.mark.parametrize("what", ["c", "blocked", "memory"])
def test_the_first_process_of_a_container_is_ended_as_well(tmp_path: Path, begun: list[Process], what: str) -> None:
    """From inside, the kernel spares it SIGKILL and SIGSTOP."""
    if not is_there_a_container():
        pytest.skip("no process may have a space of processes of its own here")
    limits = (0.0, 200.0) if what == "memory" else (1.5, 0.0)
    begun.append(process := Process(tmp_path, what, *limits, is_first=True))
    assert process.ends() == END_SIGNAL
    assert [entry[2] for entry in process.said() if entry[0] == "word"][-1][1::2] == [True, what == "memory"]


def test_a_signal_to_stop_is_heard_there_too(tmp_path: Path, begun: list[Process]) -> None:
    begun.append(process := Process(tmp_path, "c", 0))
    time.sleep(1)
    assert process.process.poll() is None
    process.process.terminate()
    assert process.ends() == -signal.SIGKILL
    level, text, stack = process.said()[-1]
    assert level == "error"
    assert "told to stop, and did not hear it within the drain deadline: it is ended" in text
    assert "in on_message" in stack


def test_one_that_eats_memory_there_is_ended_before_the_system_does_it(tmp_path: Path, begun: list[Process]) -> None:
    begun.append(process := Process(tmp_path, "memory", 0, 200))
    assert process.ends() == -signal.SIGKILL
    assert [entry[2] for entry in process.said() if entry[0] == "word"][-1][1::2] == [True, True]


@pytest.mark.parametrize("what", ["loop", "short"])
def test_one_that_comes_back_goes_on(tmp_path: Path, begun: list[Process], what: str) -> None:
    begun.append(process := Process(tmp_path, what, 30))
    assert process.ends() == 0
    words = [entry[2] for entry in process.said() if entry[0] == "word"]
    assert words[-1:] in ([], [None])


def test_one_that_is_stopped_is_left_alone_and_its_warden_ends_with_it(tmp_path: Path, begun: list[Process]) -> None:
    begun.append(process := Process(tmp_path, "stopped", 4))
    time.sleep(6)
    assert process.process.poll() is None
    process.warden.send_signal(signal.SIGTERM)
    process.warden.send_signal(signal.SIGINT)
    process.process.send_signal(signal.SIGCONT)
    time.sleep(0.2)
    assert process.warden.is_running()
    assert process.ends() == 0
    assert not [entry for entry in process.said() if entry[0] == "error"]
