"""The watchdog of a node: a thread beside its loop. It says what the loop stands in, and ends the process if it stays.

    loop ── beat ── beat ── [a handler does not return]
    watchdog:   0.5 s: word for the next owner ── 1 s: in the log, with its stack ── hung_after_s: word, log, the end

A handler in which the process's memory outgrows what it may take is ended at once, with the same word, before the
system ends it with none. A handler that comes back takes the word back. Who ends leaves it: the second node that has to
end of the same turn is the last one, and the first where the turn took half of that memory (see
`tenure.scheduler.hangs`). A process that was frozen as a whole is not hung: what counts is time in which this thread
was awake. What no thread of the process can see, its warden does (see `warden`).
"""

import os
import signal
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from tenure.nodes.footprint import Footprint
from tenure.scheduler.hangs import Hang
from tenure.scheduler.turnid import turn_id
from tenure.scheduler.turns import Turns
from tenure.signals import SAME_SIGNAL_S

if TYPE_CHECKING:
    from tenure.nodes.warden import Beside

__all__ = ["HUNG_EXIT_CODE", "Standing", "Turn", "Watchdog", "is_ours", "look_at_main", "standing_of"]

HUNG_EXIT_CODE = 4
QUIT_EXIT_CODE = 1
TICK_S, BEAT_S = 0.1, 0.2
LOOKED_AT_S, WORD_S, TOLD_S = 0.3, 0.5, 1.0
"""A loop that has not beaten for so long is looked at; what it stands in is left word of; and is told."""
TOLD_AGAIN = 3.0
"""It is told again after so many times the time before."""
LOOP_TIMES = 6
"""A loop that stands still in no single turn (it may be much work that will end) has so many times as long."""
ALARM_S, ALARM_EVERY_S = 0.4, 0.25
LAST_WORDS_S = 3.0
"""How long the last word and the last line of the log may take."""
ALONE_SHARE = 0.5
"""Who takes so much of what its process may take in one turn would do so again."""
STACK_CHARS_MAX = 6000
KINDS = ("message", "start", "stop", "resumed", "timeout", "state", "", "", "", "", "cron", "", "activity")
_IN_A_TURN: tuple[CodeType, ...] = (Turns.run_plain.__code__, Turns._run_async.__code__, Turns.run_loop.__code__)
_OURS = str(Path(__file__).resolve().parents[1]), str(Path(__file__).parents[1])
"""Folders may be links: in a checkout, those of the package are."""
_NOT_THE_APPLICATION = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<frozen"})


class Turn(NamedTuple):
    """The turn that a loop stands in."""

    partition: int
    job: str
    type: str
    kind: str
    turn: str


class Standing(NamedTuple):
    """Where a loop stands."""

    turn: Turn | None
    where: str
    """The application's line, or the innermost there is."""
    stack: str


def standing_of(frame: FrameType | None) -> Standing | None:
    """Where this thread stands, by its innermost frame; as far as can be seen from another one."""
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back  # an alarm of ours has gone off in it
    if frame is None:
        return None
    turn, where, here = None, "", frame
    walked: FrameType | None = frame
    while walked is not None and turn is None:
        if not where and not is_ours(walked.f_code.co_filename):
            where = _place(walked)
        if walked.f_code in _IN_A_TURN:
            turn = _turn_of(walked.f_locals)
        walked = walked.f_back
    return Standing(turn, where or _place(here), "".join(traceback.format_stack(frame))[-STACK_CHARS_MAX:])


def is_ours(file: str) -> bool:
    """Is this no file of the application's?"""
    return file.startswith((*_NOT_THE_APPLICATION, *_OURS)) or os.path.realpath(file).startswith(_OURS)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _turn_of(names: dict[str, Any]) -> Turn | None:
    live, envelope, turns = names.get("live"), names.get("envelope"), names.get("self")
    if live is None or envelope is None or turns is None:
        return None
    kind = KINDS[envelope.kind] if envelope.kind < len(KINDS) else ""
    return Turn(turns.partition, live.id, live.type_name, kind, turn_id(live.id, live.generation, envelope))


class Watchdog:
    """One process's. `tick` is called by its thread, with the time; all else by whoever runs the node."""

    def __init__(
        self,
        hung_after_s: float,
        drain_deadline_s: float,
        *,
        say: Callable[[str, str, str], None],
        look: Callable[[], Standing | None],
        end: Callable[[int], Any] = os._exit,
        footprint: Footprint | None = None,
        beside: "Beside | None" = None,
        last_words_s: float = LAST_WORDS_S,
    ) -> None:
        """`say` takes a level, a sentence and a stack. `hung_after_s` 0: it looks, and ends nothing that was not told
        to end, or takes too much memory, by its `footprint` (None: any may be taken).
        `beside` is what it has in common with the node's warden, if there is one."""
        self.hung_after_s, self.drain_deadline_s = hung_after_s, drain_deadline_s
        self._say, self._look, self._end, self._last_words_s = say, look, end, last_words_s
        self._footprint = footprint if footprint is not None else Footprint(0)
        self.beside = beside
        self._share_before = 0.0
        """Of what memory it may take, when the loop last went round."""
        self.node = ""
        self.is_ending = False
        self.is_alone: Callable[[], bool] = lambda: True
        """Is nothing at work in this process but its loop?"""
        self.leave_word: Callable[[Hang | None], threading.Event] | None = None
        """Lets others know; None takes it back. The event is set when it is done."""
        self._beats = self._seen_beats = 0
        self._ticked_s: float | None = None
        self._still_s = self._turn_s = 0.0
        self._next_told_s = TOLD_S
        self._standing: Standing | None = None
        self._word: Hang | None = None
        self._told_to_stop_s: float | None = None
        self._told_again = False
        self._beats_when_told = 0

    def beat(self) -> None:
        """The loop goes round."""
        self._beats += 1
        self._share_before = self._footprint.share()
        if self.beside is not None:
            self.beside.beat()

    def hear(self, number: int, now_s: float) -> None:
        """A signal came that tells the process to stop; in whatever thread."""
        if number not in (signal.SIGTERM, signal.SIGINT):
            return
        if self._told_to_stop_s is None:
            self._told_to_stop_s, self._beats_when_told = now_s, self._beats
        elif now_s - self._told_to_stop_s > SAME_SIGNAL_S:
            self._told_again = True

    @property
    def is_speaking(self) -> bool:
        """Is there something that must get out?"""
        return self._word is not None

    def tick(self, now_s: float) -> None:
        """Look whether the loop goes round."""
        gap_s = 0.0 if self._ticked_s is None else min(now_s - self._ticked_s, 3 * TICK_S)
        self._ticked_s = now_s
        if self._beats != self._seen_beats:
            self._seen_beats = self._beats
            self._goes_on()
            return
        self._still_s += gap_s
        if self._still_s < LOOKED_AT_S:
            return
        self._see(gap_s)
        if self._word is None and self._turn_s >= WORD_S:
            self._leave_word(ended=False)
        if self._still_s >= self._next_told_s:
            self._next_told_s = TOLD_AGAIN * self._still_s
            self._tell()
        self._judge(now_s)

    def _goes_on(self) -> None:
        if self._next_told_s > TOLD_S:
            self._say("info", f"the loop of this node goes on, after {self._still_s:.1f} s", "")
        if self._word is not None and self.leave_word is not None:
            self.leave_word(None)
        self._still_s = self._turn_s = 0.0
        self._next_told_s, self._standing, self._word = TOLD_S, None, None

    def _see(self, gap_s: float) -> None:
        before, self._standing = self._standing, self._look()
        turn = self._standing.turn if self._standing is not None else None
        if turn is not None and before is not None and before.turn == turn:
            self._turn_s += gap_s
        else:
            self._turn_s = self._still_s if turn is not None and before is None else 0.0
            if self._word is not None and self._word.turn != (turn.turn if turn is not None else ""):
                self._word = None
                if self.leave_word is not None:
                    self.leave_word(None)

    def _leave_word(self, *, ended: bool, memory_mib: float = 0.0) -> threading.Event | None:
        if self._standing is None or self._standing.turn is None or self.leave_word is None:
            return None
        turn, left_s = self._standing.turn, max(0.0, self.hung_after_s - self._turn_s)
        where = self._standing.where
        alone = bool(memory_mib) and self.is_alone() and self._footprint.share() - self._share_before >= ALONE_SHARE
        self._word = Hang(self.node, turn.partition, turn.job, turn.turn, where, left_s, ended, memory_mib, alone)
        return self.leave_word(self._word)

    def _what(self) -> str:
        if self._standing is None or self._standing.turn is None:
            where = f", at {self._standing.where}" if self._standing is not None else ""
            return f"the loop of this node has stood still for {self._still_s:.1f} s, in no single turn{where}"
        turn = self._standing.turn
        return (
            f"job {turn.job!r} ({turn.type}, {turn.kind}) has blocked the loop of this node for {self._turn_s:.1f} s, "
            f"at {self._standing.where} (turn {turn.turn})"
        )

    def _tell(self) -> None:
        stack = self._standing.stack if self._standing is not None else ""
        self._say("warning", f"{self._what()}: all its jobs wait. Make it async, or blocking=True", stack)

    def _judge(self, now_s: float) -> None:
        if self._told_to_stop_s is not None and self._beats == self._beats_when_told:
            if self._told_again:
                self._quit(QUIT_EXIT_CODE, "told again to stop, while it hangs: it quits at once")
            elif now_s - self._told_to_stop_s >= self.drain_deadline_s:
                self._quit(HUNG_EXIT_CODE, "told to stop, and did not hear it within the drain deadline: it is ended")
        if mib := self._outgrown_mib():
            why = (
                f"the process has grown to {mib:,.0f} MiB meanwhile, more than it may take (memory_max_mib): its "
                "watchdog ends this node; others take over, and its supervisor is to start it again"
            )
            self._quit(HUNG_EXIT_CODE, why, mib)
        if not self.hung_after_s:
            return
        if self._turn_s >= self.hung_after_s or self._still_s >= LOOP_TIMES * self.hung_after_s:
            why = "its watchdog ends this node; others take over, and its supervisor is to start it again"
            self._quit(HUNG_EXIT_CODE, why)

    def _outgrown_mib(self) -> float:
        """The process's memory, where it has become too much in the turn that the loop stands in. Where it was too much
        before, this turn is not to blame."""
        turn = self._standing.turn if self._standing is not None else None
        if self._share_before > 1 or self._turn_s < LOOKED_AT_S or turn is None:
            return 0.0
        return self._footprint.excess_mib()

    def _quit(self, code: int, why: str, memory_mib: float = 0.0) -> None:
        """Whatever hangs may hold what the log or the grid needs: neither has more time than a moment."""
        self.is_ending = True
        if self.beside is not None:
            self.beside.ending()
        delivered = self._leave_word(ended=True, memory_mib=memory_mib)
        text, stack = f"{self._what()}: {why}", self._standing.stack if self._standing is not None else ""
        saying = threading.Thread(target=self._say, args=("error", text, stack), daemon=True)
        saying.start()
        end_s = time.monotonic() + self._last_words_s
        if delivered is not None:
            delivered.wait(self._last_words_s)
        saying.join(max(0.1, end_s - time.monotonic()))
        self._end(code)

    # -- in a process -----------------------------------------------------------------------------

    async def beats(self) -> None:
        """Beat, in the loop."""
        while True:
            self.beat()
            _arm()
            await trio.sleep(BEAT_S)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While open, the thread runs, and hears signals. To be opened in the main thread, in trio."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(TICK_S):
                if self.beside is not None:
                    self.beside.tick()
                self.tick(time.monotonic())

        thread = threading.Thread(target=watch, name="tenure-watchdog", daemon=True)
        pair = None if self.beside is None else (self.beside.hears, self.beside.heard)
        with _overheard(lambda number: self.hear(number, time.monotonic()), pair), _alarms(self):
            thread.start()
            if self.beside is not None:
                self.beside.arm()
            try:
                yield
            finally:
                if self.beside is not None:
                    self.beside.disarm()
                stop.set()


def look_at_main() -> Standing | None:
    """Where the main thread stands."""
    return standing_of(sys._current_frames().get(threading.main_thread().ident or 0))


# -- signals and alarms, past a loop that does not go round ---------------------------------------


@contextmanager
def _overheard(hear: Callable[[int], None], pair: tuple[socket.socket, socket.socket] | None = None) -> Iterator[None]:
    """Python's own handlers wait for the main thread, which may be in a call that does not come back. What the kernel
    says is heard here, by a thread, and handed on to trio, which would have heard it alone."""
    reading, writing = os.pipe() if pair is None else (pair[0].detach(), pair[1].detach())
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def listen() -> None:
        with suppress(OSError):
            while heard := os.read(reading, 64):
                for number in heard:
                    hear(number)
                if before >= 0:
                    with suppress(OSError):
                        os.write(before, heard)
        os.close(reading)

    threading.Thread(target=listen, name="tenure-signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        os.close(writing)


def _deaf_child() -> None:
    # It would tell its parent of signals that are the child's.
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_deaf_child)


@contextmanager
def _alarms(watchdog: Watchdog) -> Iterator[None]:
    """Some calls keep all other threads from running (regular expressions, for one), but heed signals: an alarm that
    goes off when the loop has not beaten lets the watchdog in for a moment."""

    def let_in(number: int, frame: FrameType | None) -> None:
        if watchdog.is_ending:
            time.sleep(LAST_WORDS_S)  # what eats memory, eats no more before the word is out
        time.sleep(0.05 if watchdog.is_speaking else 0.002)

    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield  # the application has a use for it
        return
    signal.signal(signal.SIGALRM, let_in)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _arm() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    if getattr(handler, "__module__", "") == __name__:
        signal.setitimer(signal.ITIMER_REAL, ALARM_S, ALARM_EVERY_S)
