"""The warden of a node: a process beside it, which sees what its watchdog can't, as no thread of the node comes to run.

    watchdog, loop ── tick ── tick ── [a call in C keeps the interpreter's lock, and heeds no signal]
    warden:   0.5 s: word for the next owner ── 1 s: in the log, with its stack ── hung_after_s: word, log, kill -9

It is forked before anything else runs, and shares one piece of memory with the node (see `tenure.scheduler.noted`):
there the node's threads say that they come round, and its loop what it is at. Asked by a signal, the interpreter writes
where the thread that is at work stands, without its lock (`faulthandler`). A process that was stopped as a whole is not
hung, and one that gets no processor has twice as long: what counts is time in which the warden was awake, and the node
was not stopped, and did not wait for a processor (of that, half counts).
"""

import ctypes
import faulthandler
import gc
import mmap
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tenure.nodes.footprint import Footprint
from tenure.nodes.watchdog import is_ours
from tenure.scheduler.hangs import Hang
from tenure.scheduler.noted import NOTES_BYTES, Board, Note, read_notes
from tenure.scheduler.turns import Turns

Leave = Callable[[Hang | None], threading.Event]
__all__ = ["Beside", "Stood", "Warden", "fork_warden", "stood_of"]

TICK_S = 0.1
LOOKED_AT_S, WORD_S, TOLD_S, TOLD_AGAIN = 0.3, 0.5, 1.0, 3.0
LOOP_TIMES = 6
"""A loop that stands still in no turn (it may be much work that will end) has so many times as long."""
LAST_WORDS_S = 3.0
ENDING_S = 4 * LAST_WORDS_S
"""The watchdog ends its process itself, if it can, within this time."""
ALONE_SHARE = 0.5
WAITING_SHARE = 0.5
"""So much of the time in which it waits for a processor does not count. Other nodes wait no longer than twice
`hung_after_s`, either (see `tenure.scheduler.hangs`)."""
WITHOUT = "a handler that hangs in C code is ended by nobody"
STACK_S = 0.5
STACK_CHARS_MAX = 6000
STACK_SIGNAL = getattr(signal, "SIGRTMAX", 64) - 3
END_SIGNAL, PAUSE_SIGNAL = STACK_SIGNAL - 1, STACK_SIGNAL - 2
FIRST_PID = 1
"""The first process of a container: sent from inside, only signals that it has handlers for do anything to it. SIGKILL
and SIGSTOP, too, pass it by."""
ARMED, ENDING = 1, 2
_Q = struct.Struct("<Q")
_TICKS, _BEATS, _ARMED = (NOTES_BYTES + _Q.size * n for n in range(3))
_NAME, _NAME_BYTES = NOTES_BYTES + 3 * _Q.size + 2, 300
"""What stands on the board behind the notes; the length of the name is before it."""
_SAID_AT = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_TURNS = Turns.run_plain.__code__.co_filename


class Beside:
    """What a node and its warden have in common. In the node: says that it comes round."""

    def __init__(self) -> None:
        self.board: Board = mmap.mmap(-1, _NAME + _NAME_BYTES)
        self.heard, self.hears = socket.socketpair()
        """Signals: what the kernel has put in, and nobody has taken out."""
        self._stacks, self._stack = os.pipe()
        for descriptor in (self.heard.fileno(), self._stacks, self._stack):
            os.set_blocking(descriptor, False)
        self._ticks = self._beats = 0
        self.warden = 0
        """Its pid, in the node; 0: there is none."""

    # -- in the node ------------------------------------------------------------------------------

    def named(self, node: str) -> None:
        """The node's name."""
        name = node.encode()[:_NAME_BYTES]
        self.board[_NAME : _NAME + len(name)] = name
        self.board[_NAME - 2 : _NAME] = struct.pack("<H", len(name))

    def arm(self) -> None:
        """From now on the node is looked after."""
        faulthandler.register(STACK_SIGNAL, file=self._stack, all_threads=False, chain=False)
        if os.getpid() == FIRST_PID:
            _become_mortal()
        self._put(_ARMED, ARMED)

    def disarm(self) -> None:
        """No longer."""
        self._put(_ARMED, 0)

    def ending(self) -> None:
        """The watchdog ends this process."""
        self._put(_ARMED, ENDING)

    def tick(self) -> None:
        """Threads of the node come to run."""
        self._ticks += 1
        self._put(_TICKS, self._ticks)

    def beat(self) -> None:
        """Its loop goes round."""
        self._beats += 1
        self._put(_BEATS, self._beats)

    def close(self) -> None:
        """There is nothing to look after any more."""
        if warden := self.warden:
            self.warden = 0
            with suppress(OSError):
                os.kill(warden, signal.SIGKILL)
                os.waitpid(warden, 0)
        self.heard.close()
        self.hears.close()
        faulthandler.unregister(STACK_SIGNAL)
        for descriptor in (self._stacks, self._stack):
            os.close(descriptor)

    def _put(self, at: int, value: int) -> None:
        self.board[at : at + 8] = _Q.pack(value)

    # -- in the warden ----------------------------------------------------------------------------

    def state(self) -> int:
        """Is it armed?"""
        return int(_Q.unpack_from(self.board, _ARMED)[0])

    def seen(self) -> tuple[int, int]:
        """How far its threads and its loop have come."""
        return _Q.unpack_from(self.board, _TICKS)[0], _Q.unpack_from(self.board, _BEATS)[0]

    def name(self) -> str:
        """The node's."""
        [length] = struct.unpack_from("<H", self.board, _NAME - 2)
        return bytes(self.board[_NAME : _NAME + length]).decode(errors="replace")

    def note(self) -> Note | None:
        """What its loop is at."""
        return read_notes(self.board)

    def told_to_stop(self) -> int:
        """How many signals to stop nobody has taken out yet."""
        try:
            numbers = self.hears.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return 0
        return sum(number in (signal.SIGTERM, signal.SIGINT) for number in numbers)

    def stack(self, ask: Callable[[int], None]) -> str:
        """Where the thread stands that is asked by this signal."""
        with suppress(OSError):
            os.read(self._stacks, 65536)
        ask(STACK_SIGNAL)
        found, end_s = b"", time.monotonic() + STACK_S
        while time.monotonic() < end_s and not found.endswith(b"\n\n"):
            time.sleep(0.02)
            try:
                found += os.read(self._stacks, 65536)
            except OSError:
                if found:
                    break
        return found.decode(errors="replace").strip()


class Stood(NamedTuple):
    """Where a main thread stands, by what it said of itself."""

    where: str
    in_turn: bool
    stack: str


def stood_of(stack: str) -> Stood:
    """The application's line, or the innermost there is; and whether that is in a turn."""
    lines = _SAID_AT.findall(stack)
    places = [f"{file}:{line} in {name}" for file, line, name in lines if not is_ours(file)]
    where = places[0] if places else next((f"{file}:{line} in {name}" for file, line, name in lines), "")
    return Stood(where, any(file == _TURNS for file, _, _ in lines), stack[-STACK_CHARS_MAX:])


class Warden:
    """One node's. `tick` is called ten times a second, with the time."""

    def __init__(
        self,
        beside: Any,
        hung_after_s: float,
        drain_deadline_s: float,
        *,
        say: Callable[[str, str, str], None],
        stack: Callable[[], str],
        words_of: Callable[[str], Leave] | None,
        is_stopped: Callable[[], bool],
        waited_s: Callable[[], float],
        is_main: Callable[[], bool],
        freeze: Callable[[], None],
        end: Callable[[], None],
        footprint: Any,
    ) -> None:
        """`say` takes a level, a sentence and a stack. `waited_s`: so long has its main thread waited for a processor,
        in all. `is_main`: is it the main thread that is at work, as far as one
        can see, since it was last asked? `freeze` lets the process take no more; `end` ends it."""
        self.hung_after_s, self.drain_deadline_s = hung_after_s, drain_deadline_s
        self._beside, self._say, self._stack, self._words_of = beside, say, stack, words_of
        self._leave: Leave | None = None
        self._is_stopped, self._is_main, self._freeze, self._end = is_stopped, is_main, freeze, end
        self._waited_s, self._waited_before_s = waited_s, 0.0
        self._footprint = footprint
        self._share_before = 0.0
        self._seen: Any = None
        self._ticked_s: float | None = None
        self._still_s = self._told_s = 0.0
        self._next_told_s = TOLD_S
        self._note: Note | None = None
        self._stood: Stood | None = None
        self._word: Hang | None = None
        self._told_to_stop, self._has_looked, self._has_noted, self._has_ended = 0, False, False, False
        self._was_main = True

    def tick(self, now_s: float) -> None:
        """Look whether anything in the node comes to run."""
        gap_s = 0.0 if self._ticked_s is None else min(now_s - self._ticked_s, 3 * TICK_S)
        self._ticked_s = now_s
        seen = self._beside.state(), self._beside.seen()
        if seen != self._seen or not seen[0]:
            self._seen = seen
            self._goes_on()
            return
        if self._is_stopped():
            return
        waited_s = self._waited_s()
        if not self._has_looked:
            self._has_looked, self._waited_before_s = True, waited_s
            self._is_main()  # from here on
        gap_s -= min(waited_s - self._waited_before_s, WAITING_SHARE * gap_s)
        self._waited_before_s = waited_s
        self._still_s += gap_s
        if self._has_ended:
            self._end()
        elif seen[0] == ENDING:
            if self._still_s >= ENDING_S:
                self._end()
        elif self._still_s >= LOOKED_AT_S:
            self._look(gap_s)

    def _goes_on(self) -> None:
        if self._next_told_s > TOLD_S:
            self._say("info", f"this node comes to run again, after {self._still_s:.1f} s", "")
        if self._word is not None and self._leave is not None:
            self._leave(None)
        self._still_s = self._told_s = 0.0
        self._told_to_stop, self._has_looked, self._has_noted = 0, False, False
        self._next_told_s, self._note, self._stood, self._word = TOLD_S, None, None, None
        self._share_before = self._footprint.share()

    def _look(self, gap_s: float) -> None:
        if not self._has_noted:
            self._has_noted, self._was_main = True, self._is_main()
            self._note = self._beside.note() if self._was_main else None
        if self._word is None and self._still_s >= WORD_S:
            self._leave_word()
        if self._still_s >= self._next_told_s:
            self._next_told_s = TOLD_AGAIN * self._still_s
            self._see()
            stack = self._stood.stack if self._stood is not None else ""
            advice = " Make it blocking=True, or a program" if self._note is not None else ""
            self._say("warning", f"{self._what()}: all its jobs wait.{advice}", stack)
        if told := self._beside.told_to_stop():
            self._told_s += gap_s
            if self._told_to_stop and told > self._told_to_stop and self._told_s > TOLD_S:
                self._quit("told again to stop, while nothing in it comes to run: it is ended at once")
            elif self._told_s >= self.drain_deadline_s:
                self._quit("told to stop, and did not hear it within the drain deadline: it is ended")
            self._told_to_stop = self._told_to_stop or told
        self._judge()

    def _judge(self) -> None:
        ends = "its warden ends this node; others take over, and its supervisor is to start it again"
        if self._note is not None and self._share_before <= 1 and (mib := self._footprint.excess_mib()):
            self._freeze()
            what = f"the process has grown to {mib:,.0f} MiB meanwhile, more than it may take (memory_max_mib)"
            self._quit(f"{what}: {ends}", mib)
        elif self.hung_after_s and self._still_s >= self.hung_after_s:
            if self._stood is None:
                self._see()
            in_turn = self._note is not None or (self._stood is not None and self._stood.in_turn)
            if in_turn or not self._was_main or self._still_s >= LOOP_TIMES * self.hung_after_s:
                self._quit(ends)

    def _see(self) -> None:
        self._stood = stood_of(self._stack())

    def _leave_word(self, *, ended: bool = False, memory_mib: float = 0.0) -> threading.Event | None:
        note = self._note
        if note is None or self._words_of is None:
            return None
        where = self._stood.where if self._stood is not None else ""
        left_s = max(0.0, self.hung_after_s - self._still_s)
        alone = bool(memory_mib) and self._footprint.share() - self._share_before >= ALONE_SHARE
        node = self._beside.name()
        self._leave = self._leave or self._words_of(node)
        self._word = Hang(node, note.partition, note.job, note.turn, where, left_s, ended, memory_mib, alone)
        return self._leave(self._word)

    def _what(self) -> str:
        at = f", at {self._stood.where}" if self._stood is not None and self._stood.where else ""
        for_s = f"for {self._still_s:.1f} s{at}"
        lock = "in a call that keeps the interpreter's lock, so that not even its watchdog runs"
        if self._note is None:
            return f"nothing in this node has come to run {for_s}, {lock}"
        turn = f" (turn {self._note.turn})" if self._note.turn else ""
        return f"job {self._note.job!r} ({self._note.type}) has blocked the whole of this node {for_s}{turn}, {lock}"

    def _quit(self, why: str, memory_mib: float = 0.0) -> None:
        if self._stood is None and not memory_mib:
            self._see()
        delivered = self._leave_word(ended=True, memory_mib=memory_mib)
        self._say("error", f"{self._what()}: {why}", self._stood.stack if self._stood is not None else "")
        if delivered is not None:
            delivered.wait(LAST_WORDS_S)
        self._has_ended = True
        self._end()


# -- as a process ---------------------------------------------------------------------------------


def fork_warden(
    hung_after_s: float,
    drain_deadline_s: float,
    memory_max_mib: float | None,
    words_of: Callable[[str], Leave] | None,
    say: Callable[[str, str, str], None],
) -> Beside:
    """A warden for this process, to be begun before any thread is; what it shares with it. It ends with it. `words_of`
    a node of this name: how to leave them."""
    beside, node = Beside(), os.getpid()
    if sys.platform != "linux":
        return beside
    try:
        beside.warden = os.fork()
        if beside.warden:
            return beside
    except OSError as error:
        say("warning", f"this node has no warden, as it could not be forked ({error.strerror}): {WITHOUT}", "")
        return beside
    try:
        _settle_down(beside)
        process = _Process(node)
        warden = Warden(
            beside,
            hung_after_s,
            drain_deadline_s,
            say=partial(_say_briefly, say),
            stack=lambda: beside.stack(process.ask),
            words_of=words_of,
            is_stopped=process.is_stopped,
            waited_s=process.waited_s,
            is_main=process.is_main,
            freeze=process.freeze,
            end=process.end,
            footprint=Footprint(memory_max_mib, Path(f"/proc/{node}/statm")),
        )
        told_of = ""
        while os.getppid() == node:
            time.sleep(TICK_S)
            try:
                warden.tick(time.monotonic())
            except OSError:
                continue  # it has ended, it seems
            except Exception as error:  # noqa: BLE001  # without it nobody would end what hangs
                if told_of != (told_of := repr(error)):
                    _say_briefly(say, "warning", f"this node's warden has failed, and goes on: {told_of}", "")
    finally:
        os._exit(0)
    return beside  # never


def _say_briefly(say: Callable[[str, str, str], None], level: str, text: str, stack: str) -> None:
    """Perhaps nobody reads the log just now: what hangs is ended all the same, and the warden ends with it."""
    saying = threading.Thread(target=say, args=(level, text, stack), daemon=True)
    saying.start()
    saying.join(LAST_WORDS_S)


def _settle_down(beside: Beside) -> None:
    """Signals are the node's: terminals and supervisors tell whole process groups."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    beside.heard.close()
    gc.freeze()
    gc.disable()
    with suppress(OSError):
        Path("/proc/self/comm").write_text("tenure-warden")


def _become_mortal() -> None:
    """The handlers are functions of the system's library, which run where no Python comes to run."""
    library = ctypes.CDLL(None)
    for number, handler in ((END_SIGNAL, library._exit), (PAUSE_SIGNAL, library.pause)):
        library.signal(number, ctypes.cast(handler, ctypes.c_void_p))


class _Process:
    """The node's, from outside."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._worked: dict[str, int] = {}
        self._at_work = pid
        """The thread that has worked most, of late."""
        self._to_thread = getattr(ctypes.CDLL(None), "tgkill", None)

    def ask(self, number: int) -> None:
        """A signal to the thread that is at work; to any, where the system's library can't."""
        if self._to_thread is None or self._to_thread(self._pid, self._at_work, number):
            self.send(number)

    def freeze(self) -> None:
        """At least the thread that is at work."""
        if self._pid == FIRST_PID:
            self.ask(PAUSE_SIGNAL)
        else:
            self.send(signal.SIGSTOP)

    def end(self) -> None:
        """At once."""
        self.send(END_SIGNAL if self._pid == FIRST_PID else signal.SIGKILL)

    def send(self, number: int) -> None:
        """Only as long as it is there."""
        if os.getppid() == self._pid:
            os.kill(self._pid, number)

    def is_stopped(self) -> bool:
        """By somebody, or looked at by a debugger."""
        return _stat(Path(f"/proc/{self._pid}/stat"))[0] in "Tt"

    def waited_s(self) -> float:
        """So long has its main thread waited for a processor, in all; 0 where the system does not tell."""
        with suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) / 1e9
        return 0.0

    def is_main(self) -> bool:
        """Has no other thread worked more than the main one, since this was last asked?"""
        before, self._worked = self._worked, {}
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                fields = _stat(task / "stat")
                self._worked[task.name] = int(fields[11]) + int(fields[12])
        worked = {task: ticks - before.get(task, 0) for task, ticks in self._worked.items()}
        main = str(self._pid)
        self._at_work = int(max(worked, key=lambda task: (worked[task], task == main), default=main))
        return self._at_work == self._pid


def _stat(path: Path) -> list[str]:
    """The fields behind the name, which may have anything in it."""
    return path.read_text(errors="replace").rpartition(")")[2].split()
