"""The watchdog, with a clock of the test's: what it says, leaves and ends, and when."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.nodes.watchdog import HUNG_EXIT_CODE, TICK_S, Standing, Turn, Watchdog, standing_of
from tenure.scheduler.hangs import Hang
from tenure.scheduler.jobtype import JobType, Registry
from tenure.testing import Cluster

TURN = Turn(7, "hog-1", "hog", "message", "hog-1/1/x.1.0.0")


class Dog:
    """A watchdog and all that it does."""

    def __init__(self, hung_after_s: float = 10.0, drain_deadline_s: float = 30.0) -> None:
        self.now_s, self.taken_mib, self.limit_mib = 100.0, 50.0, 1000.0
        self.said: list[tuple[str, float, str, str]] = []
        self.words: list[Hang | None] = []
        self.ends: list[tuple[float, int]] = []
        self.standing: Callable[[], Standing | None] = lambda: Standing(TURN, "app.py:12 in on_message", "the stack")
        self.watchdog = Watchdog(
            hung_after_s,
            drain_deadline_s,
            say=self._say,
            look=lambda: self.standing(),
            end=self._end,
            footprint=self,  # type: ignore[arg-type]
            last_words_s=0.2,
        )
        self.watchdog.node = "a"
        self.watchdog.leave_word = self._leave
        self.watchdog.tick(self.now_s)

    def share(self) -> float:
        return self.taken_mib / self.limit_mib

    def excess_mib(self) -> float:
        return self.taken_mib if self.share() > 1 else 0.0

    def _say(self, level: str, text: str, stack: str) -> None:
        self.said.append((level, round(self.now_s - 100, 1), text, stack))

    def _leave(self, word: Hang | None) -> threading.Event:
        self.words.append(word)
        done = threading.Event()
        done.set()
        return done

    def _end(self, code: int) -> None:
        self.ends.append((round(self.now_s - 100, 1), code))
        raise SystemExit(code)

    def goes(self, seconds: float, beats: bool = False) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            if beats:
                self.watchdog.beat()
            self.watchdog.tick(self.now_s)

    def until_the_end(self) -> None:
        with pytest.raises(SystemExit):
            self.goes(1000)


def test_a_loop_that_goes_round_is_left_alone() -> None:
    dog = Dog()
    dog.goes(100, beats=True)
    assert (dog.said, dog.words, dog.ends) == ([], [], [])


def test_what_blocks_the_loop_is_named_once_and_then_more_and_more_rarely() -> None:
    dog = Dog(hung_after_s=0)
    dog.goes(40)
    assert [level for level, _, _, _ in dog.said] == ["warning"] * 4
    assert [at_s for _, at_s, _, _ in dog.said] == pytest.approx([1, 3, 9, 27], rel=0.15)
    _, _, text, stack = dog.said[0]
    assert text.startswith("job 'hog-1' (hog, message) has blocked the loop of this node for 1.")
    assert stack == "the stack"
    assert not dog.ends


def test_word_is_left_early_and_taken_back_when_the_loop_goes_on() -> None:
    dog = Dog()
    dog.goes(0.3)
    assert not dog.words
    dog.goes(0.3)
    [word] = dog.words
    assert word == Hang("a", 7, "hog-1", TURN.turn, "app.py:12 in on_message", pytest.approx(9.5, abs=0.2), False)
    dog.goes(2)
    dog.watchdog.beat()
    dog.goes(0.1)
    assert dog.words == [word, None]
    assert dog.said[-1][0] == "info"
    assert "goes on, after 2." in dog.said[-1][2]
    dog.goes(50, beats=True)
    assert len(dog.words) == 2
    assert not dog.ends


def test_a_handler_that_does_not_return_ends_the_process_and_leaves_word_of_that() -> None:
    dog = Dog()
    dog.until_the_end()
    [(at_s, code)] = dog.ends
    assert code == HUNG_EXIT_CODE == 4
    assert 10 <= at_s <= 10.2
    assert dog.words[-1] is not None
    assert dog.words[-1].ended
    assert not any(word.ended for word in dog.words[:-1] if word is not None)
    level, _, text, stack = dog.said[-1]
    assert (level, stack) == ("error", "the stack")
    assert "its watchdog ends this node" in text


def test_many_short_turns_are_blamed_on_nobody_and_have_longer() -> None:
    dog = Dog()
    numbers = iter(range(10_000))
    dog.standing = lambda: Standing(TURN._replace(turn=str(next(numbers))), "app.py:12 in on_message", "")
    dog.until_the_end()
    [(at_s, _)] = dog.ends
    assert 60 <= at_s <= 60.2
    assert not [word for word in dog.words if word is not None and not word.ended]


def test_one_turn_after_another_has_its_own_time() -> None:
    dog = Dog()
    dog.goes(8)
    dog.standing = lambda: Standing(TURN._replace(turn="another"), "", "")
    dog.goes(8)
    assert not dog.ends
    assert [word.turn if word is not None else None for word in dog.words] == [TURN.turn, None, "another"]


def test_in_no_turn_it_has_longer_too() -> None:
    dog = Dog()
    dog.standing = lambda: Standing(None, "engine.py:1 in f", "")
    dog.until_the_end()
    assert 60 <= dog.ends[0][0] <= 60.2
    assert "in no single turn, at engine.py:1 in f" in dog.said[0][2]
    assert dog.words == []


def test_a_process_that_was_frozen_as_a_whole_is_not_hung() -> None:
    dog = Dog()
    for _ in range(20):
        dog.now_s += 60  # nobody was awake
        dog.watchdog.tick(dog.now_s)
        dog.watchdog.beat()
        dog.goes(0.1)
    assert (dog.ends, dog.words) == ([], [])


def test_a_signal_is_heard_though_the_loop_is_not() -> None:
    dog = Dog(hung_after_s=0, drain_deadline_s=5)
    dog.goes(2)
    dog.watchdog.hear(signal.SIGCHLD, dog.now_s)
    dog.goes(10)
    dog.watchdog.hear(signal.SIGTERM, dog.now_s)
    dog.watchdog.hear(signal.SIGTERM, dog.now_s + 0.1)  # the same one
    dog.until_the_end()
    assert dog.ends == [(pytest.approx(17, abs=0.2), HUNG_EXIT_CODE)]
    assert "told to stop, and did not hear it within the drain deadline" in dog.said[-1][2]


def test_told_again_it_quits_at_once() -> None:
    dog = Dog(hung_after_s=0)
    dog.goes(2)
    dog.watchdog.hear(signal.SIGTERM, dog.now_s)
    dog.goes(1)
    dog.watchdog.hear(signal.SIGINT, dog.now_s)
    dog.until_the_end()
    assert dog.ends == [(pytest.approx(3.1, abs=0.1), 1)]


def test_a_loop_that_has_heard_the_signal_is_left_to_drain() -> None:
    dog = Dog(hung_after_s=0, drain_deadline_s=1)
    dog.watchdog.hear(signal.SIGTERM, dog.now_s)
    dog.goes(5, beats=True)
    dog.goes(5)  # a long turn; it has heard
    assert not dog.ends


def test_a_log_or_grid_that_hangs_too_does_not_keep_it_from_ending() -> None:
    dog, never = Dog(), threading.Event()
    dog.watchdog.leave_word = lambda word: threading.Event()
    say = dog.watchdog._say
    dog.watchdog._say = lambda level, text, stack: never.wait(20) if level == "error" else say(level, text, stack)  # type: ignore[func-returns-value]
    began_s = time.monotonic()
    dog.until_the_end()
    never.set()
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("hung_after_s", [0.0, 10.0])
def test_a_handler_that_eats_memory_ends_the_process_at_once_and_leaves_word_of_that(hung_after_s: float) -> None:
    dog = Dog(hung_after_s)
    dog.goes(1, beats=True)
    dog.goes(2)
    assert not dog.ends
    dog.taken_mib = 3700.0
    dog.until_the_end()
    [(at_s, code)] = dog.ends
    assert code == HUNG_EXIT_CODE
    assert at_s == pytest.approx(3.1, abs=0.1)
    word = dog.words[-1]
    assert word is not None
    assert (word.job, word.turn, word.ended, word.memory_mib) == ("hog-1", TURN.turn, True, 3700.0)
    assert word.alone
    level, _, text, stack = dog.said[-1]
    assert (level, stack) == ("error", "the stack")
    assert "job 'hog-1' (hog, message)" in text
    assert "has grown to 3,700 MiB meanwhile, more than it may take (memory_max_mib)" in text


@pytest.mark.parametrize(
    ("before_mib", "is_alone", "proved"), [(450, True, True), (550, True, False), (450, False, False)]
)
def test_who_took_more_than_half_of_it_alone_is_proved_guilty(before_mib: float, is_alone: bool, proved: bool) -> None:
    dog = Dog()
    dog.taken_mib = before_mib
    dog.watchdog.is_alone = lambda: is_alone
    dog.goes(1, beats=True)
    dog.taken_mib = 1001.0
    dog.until_the_end()
    assert [word.alone for word in dog.words if word is not None] == [proved]


def test_the_first_look_finds_it() -> None:
    dog = Dog()
    dog.goes(1, beats=True)
    dog.taken_mib = 1500.0
    dog.until_the_end()
    assert dog.ends == [(pytest.approx(1.4, abs=0.11), HUNG_EXIT_CODE)]
    assert [word.ended for word in dog.words if word is not None] == [True]


def test_memory_that_was_taken_before_is_not_held_against_a_turn() -> None:
    dog = Dog()
    dog.taken_mib = 1500.0
    dog.goes(1, beats=True)
    dog.goes(5)
    assert not dog.ends


def test_memory_outside_of_turns_is_held_against_nobody() -> None:
    dog = Dog()
    dog.standing = lambda: Standing(None, "engine.py:1 in f", "")
    dog.goes(1, beats=True)
    dog.taken_mib = 1500.0
    dog.goes(5)
    assert (dog.ends, dog.words) == ([], [])


# -- where a loop stands --------------------------------------------------------------------------

in_hand, go_on = threading.Event(), threading.Event()


def _block() -> None:
    in_hand.set()
    go_on.wait(20)


class Plain(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: Any) -> None:
        _block()


class Async(tenure.Job):
    async def on_message(self, ctx: tenure.Context, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        await self._deeper()

    async def _deeper(self) -> None:
        _block()


class Start(tenure.Job):
    def on_start(self, ctx: tenure.Context) -> None:
        _block()


KINDS = {"plain": (Plain, "message"), "async": (Async, "message"), "start": (Start, "start")}
TYPES = Registry(*(JobType(name, kind) for name, (kind, _) in KINDS.items()))


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    in_hand.clear()
    go_on.clear()
    yield
    go_on.set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_is_recognised_from_outside(kind: str) -> None:
    async def serve() -> None:
        async with (
            Cluster(nodes=1, members=1, backups=0, partitions=4, app=TYPES) as cluster,
            cluster.client() as client,
        ):
            await client.schedule(kind, id="j")
            if kind != "start":
                await client.publish("j", 1)
            with trio.move_on_after(20):
                while not in_hand.is_set():  # noqa: ASYNC110
                    await trio.sleep(0.01)

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert in_hand.wait(20)
    time.sleep(0.05)
    standing = standing_of(sys._current_frames().get(thread.ident or 0))
    go_on.set()
    thread.join(20)
    assert standing is not None
    assert standing.turn is not None
    assert standing.turn[1:4] == ("j", kind, KINDS[kind][1])
    assert standing.turn.turn.startswith("j/1/")
    assert f"{Path(__file__).name}:" in standing.where
    assert standing.where.endswith("in _block")
    assert "_block" in standing.stack


def test_outside_of_turns_there_is_the_line_alone() -> None:
    standing = standing_of(sys._getframe())
    assert standing is not None
    assert standing.turn is None
    assert standing.where.endswith("in test_outside_of_turns_there_is_the_line_alone")
    assert standing_of(None) is None
