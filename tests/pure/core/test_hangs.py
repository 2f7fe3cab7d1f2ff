"""Word of nodes that hang in a turn: that one waits, and is given up when two have ended of it; all others go on, and
no job is parked that did nothing."""

from typing import Any

import msgspec
import pytest
import trio

from tenure.scheduler.context import Context
from tenure.scheduler.grid.port import Map
from tenure.scheduler.hangs import HANG_PREFIX, PATIENCE_S, WORD_KEPT_S, Hang, Hangs, hang_key
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.noted import Note, read_notes
from tenure.scheduler.turnid import turn_id
from tenure.scheduler.wire import Envelope, decode, encode
from tests.pure.core.bench import FORMATION, Bench, Kill9, Opened, rest

STANDS_S = 9.5
trouble: set[int] = set()
ran: list[tuple[str, int]] = []
attempts: dict[tuple[str, int], int] = {}


class Fragile(Job):
    seen: list[int] = []

    def on_message(self, ctx: Context, message: int) -> None:
        ran.append((ctx.id, message))
        attempts[ctx.id, message] = ctx.attempt
        if ctx.id == "bad" and message in trouble:
            raise Kill9  # as a node that hangs: others take over, and nothing was committed
        self.seen.append(message)


TYPE = JobType("fragile", Fragile)


@pytest.fixture(autouse=True)
def calm() -> None:
    trouble.clear()
    ran.clear()


def word(turn: str, node: str = "n1", *, ended: bool = False, stands_s: float = STANDS_S) -> dict[bytes, Hang]:
    return {hang_key(node): Hang(node, 0, "bad", turn, "app.py:3 in on_message", stands_s, ended)}


async def hung(bench: Bench) -> str:
    """A first node hangs in a turn of `bad`; returns which it is. Others of the partition wait behind it."""
    for id in ("bad", "good"):
        await bench.define(id, "fragile")
    first = await bench.open(TYPE)
    await bench.publish("bad", 1)
    await bench.publish("good", 1)
    await rest(2)
    trouble.add(2)
    key = await bench.send(bench.message("bad", 2))
    await bench.publish("good", 2)
    await first.ended.wait()
    ran.clear()
    return turn_id("bad", 1, Envelope("bad", slot=key, origin=FORMATION))


def tell(opened: Opened, words: dict[bytes, Hang]) -> None:
    """What its node does with each look."""
    host = opened.tenure.host
    if host.hangs.see(words, trio.current_time()):
        opened.tenure.suspicion.heard()


async def taken_over(bench: Bench, words: dict[bytes, Hang]) -> Opened:
    """By a node that has seen these words before."""

    def make(host: Any, journal: Any) -> Any:
        from tenure.scheduler.tenure import Tenure

        host.hangs.see(words, trio.current_time())
        return Tenure(host, journal)

    return await bench.open(TYPE, make=make)


async def described(bench: Bench, id: str = "bad") -> Any:
    return msgspec.msgpack.decode((await bench.command("describe", id)).body)


async def test_whose_turn_somebody_stands_in_waits_and_others_do_not(bench: Bench) -> None:
    turn = await hung(bench)
    second = await taken_over(bench, word(turn))
    for n in range(3, 200):
        await bench.publish("good", n)
        await bench.publish("bad", n)
        await rest(0.05)
        tell(second, word(turn))
    assert (await bench.state_of("good"))["seen"] == [1, *range(2, 200)]
    assert not [message for id, message in ran if id == "bad"]
    assert not second.ended.is_set()
    # It comes back by itself: what it stood in was slow, no more.
    trouble.clear()
    tell(second, {})
    await rest(2)
    assert (await bench.state_of("bad"))["seen"] == [1, *range(2, 200)]
    assert (await described(bench))["failure"] is None
    assert not second.tenure.suspicion.is_on()


async def test_the_second_that_ends_of_it_is_the_last(bench: Bench) -> None:
    turn = await hung(bench)
    first = word(turn, ended=True)
    second = await taken_over(bench, word(turn))
    await rest(5)
    assert not second.ended.is_set()
    tell(second, first)
    with trio.fail_after(60):
        await second.ended.wait()  # its turn to hang
    assert ran[-1] == ("bad", 2)
    third = await taken_over(bench, first | word(turn, "n2"))
    await rest(5)
    assert not third.ended.is_set()
    grid = bench.grid()
    for key, hang in (first | word(turn, "n2", ended=True)).items():
        await grid.set(Map.NODES, 0, key, encode(hang), ttl_s=WORD_KEPT_S)
    ran.clear()
    tell(third, first | word(turn, "n2", ended=True))
    await rest(5)
    assert not third.ended.is_set()
    assert ("bad", 2) not in ran
    found = await described(bench)
    assert found["status"] == "failed"
    assert found["failure"]["error"] == (
        "HungRepeatedly: 2 nodes stood still in this turn, and had to be ended: at app.py:3 in on_message"
    )
    assert found["first_waiting"]["message"] == 2
    assert (await bench.state_of("good"))["seen"] == [1, 2]
    assert not [key for key in await bench.keys(Map.NODES) if key.startswith(HANG_PREFIX)]
    # Mended, it is tried again, and no old word stops it; also where a late look still shows one.
    trouble.clear()
    tell(third, first | word(turn, "n2", ended=True))
    await bench.command("retry", "bad")
    await rest(2)
    assert (await bench.state_of("bad"))["seen"] == [1, 2]


async def test_the_first_is_the_last_where_the_turn_alone_ate_its_memory(bench: Bench) -> None:
    turn = await hung(bench)
    [(key, hang)] = word(turn, ended=True).items()
    ate = msgspec.structs.replace(hang, memory_mib=3700.0, alone=True)
    second = await taken_over(bench, {key: ate})
    await rest(5)
    assert not second.ended.is_set()
    found = await described(bench)
    assert found["status"] == "failed"
    assert found["failure"]["error"] == (
        "TookTooMuchMemory: in this turn a node came to take 3,700 MiB of memory, more than a node may take "
        "(memory_max_mib), and had to be ended: at app.py:3 in on_message"
    )
    assert ("bad", 2) not in ran
    assert (await bench.state_of("good"))["seen"] == [1, 2]


async def test_who_can_not_say_which_turn_of_a_job_it_stands_in_holds_back_that_job_alone(bench: Bench) -> None:
    turn = await hung(bench)
    some = word("")
    second = await taken_over(bench, some)
    await rest(5)
    assert not [message for id, message in ran if id == "bad"]
    assert (await bench.state_of("good"))["seen"] == [1, 2]
    tell(second, word("", ended=True))
    with trio.fail_after(60):
        await second.ended.wait()  # its turn to hang, and it says in which
    assert ran[-1] == ("bad", 2)
    both = word("", ended=True) | word(turn, "n2", ended=True)
    third = await taken_over(bench, both)
    await rest(5)
    assert not third.ended.is_set()
    found = await described(bench)
    assert found["status"] == "failed"
    assert found["failure"]["error"].startswith("HungRepeatedly: 2 nodes stood still in this turn")
    assert found["first_waiting"]["message"] == 2


async def test_two_that_can_not_say_which_turn_it_was_park_nothing(bench: Bench) -> None:
    await hung(bench)
    trouble.clear()
    third = await taken_over(bench, word("", ended=True) | word("", "n5", ended=True))
    await rest(3)
    assert (await bench.state_of("bad"))["seen"] == [1, 2]
    await rest(60)
    tell(third, word("", ended=True) | word("", "n5", ended=True))
    third.tenure.suspicion.tidy()
    assert not third.tenure.host.hangs.any()


async def test_what_the_loop_is_at_is_noted_and_by_its_turn_while_attempts_are_counted(bench: Bench) -> None:
    noted: list[Note | None] = []

    class Noted(Job):
        def on_message(self, ctx: Context, message: int) -> None:
            noted.append(read_notes(boards[-1]))
            if message == 2 and not trouble:
                trouble.add(2)
                raise Kill9

    class Async(Job):
        async def on_message(self, ctx: Context, message: int) -> None:
            await trio.lowlevel.checkpoint()
            noted.append(read_notes(boards[-1]))

    types = (JobType("noted", Noted), JobType("async", Async))
    boards = []
    for id, type in (("bad", "noted"), ("b" * 300, "noted"), ("later", "async")):
        await bench.define(id, type)
    first = await bench.open(*types)
    boards.append(first.tenure.host.board)
    for id in ("bad", "b" * 300, "later"):
        await bench.publish(id, 1)
        await rest(2)
    assert noted == [Note(0, "bad", "noted", ""), None, None]
    assert read_notes(boards[-1]) is None
    key = await bench.send(bench.message("bad", 2))
    await first.ended.wait()
    second = await bench.open(*types)
    boards.append(second.tenure.host.board)
    await rest(2)
    turn = turn_id("bad", 1, Envelope("bad", slot=key, origin=FORMATION))
    assert noted[-1] == Note(0, "bad", "noted", turn)
    await rest(10)
    assert not second.tenure.suspicion.is_on()
    await bench.publish("bad", 3)
    await rest(1)
    assert noted[-1] == Note(0, "bad", "noted", "")


async def test_async_turns_are_noted_step_by_step_while_attempts_are_counted(bench: Bench) -> None:
    noted: list[tuple[str, Note | None]] = []

    class Steps(Job):
        async def on_message(self, ctx: Context, message: int) -> str:
            noted.append((ctx.id, read_notes(second.tenure.host.board)))
            await trio.sleep(0.1)
            noted.append((ctx.id, read_notes(second.tenure.host.board)))
            with trio.move_on_after(0.1):
                await trio.sleep(1)
            noted.append((ctx.id, read_notes(second.tenure.host.board)))
            if message < 0:
                raise ValueError(message)
            return "done"

    type = JobType("steps", Steps, retry=Retry(attempts_max=1))
    for id in ("x", "y"):
        await bench.define(id, "steps")
    first = await bench.open(type)
    await rest(1)
    await first.kill()
    keys = {id: await bench.send(bench.message(id, 1)) for id in ("x", "y")}
    second = await bench.open(type)
    await rest(0.05)
    assert second.tenure.suspicion.is_on()
    assert read_notes(second.tenure.host.board) is None
    await rest(0.5)
    turns = {id: turn_id(id, 1, Envelope(id, slot=key, origin=FORMATION)) for id, key in keys.items()}
    assert len(noted) == 6
    assert all(note == Note(0, id, "steps", turns[id]) for id, note in noted)
    await bench.publish("x", -1)
    await rest(1)
    assert (await described(bench, "x"))["failure"]["error"].startswith("ValueError: -1")


async def test_who_had_to_end_once_is_tried_again_alone_and_counted(bench: Bench) -> None:
    turn = await hung(bench)
    trouble.clear()  # it was a lock that somebody held, say
    await taken_over(bench, word(turn, ended=True))
    await rest(3)
    assert (await bench.state_of("bad"))["seen"] == [1, 2]
    assert attempts["bad", 2] == 2
    assert (await described(bench))["status"] == "running"


async def test_one_that_neither_comes_back_nor_is_ended_has_ended_otherwise(bench: Bench) -> None:
    turn = await hung(bench)
    trouble.clear()
    second = await taken_over(bench, word(turn))
    begun_s = trio.current_time()
    with trio.fail_after(600):
        while ("bad", 2) not in ran:
            await rest(0.2)
            tell(second, word(turn))
    assert STANDS_S + PATIENCE_S - 1 <= trio.current_time() - begun_s <= STANDS_S + PATIENCE_S + 1
    await rest(3)
    assert (await bench.state_of("bad"))["seen"] == [1, 2]


async def test_word_of_another_turn_or_of_ones_own_is_nothing(bench: Bench) -> None:
    turn = await hung(bench)
    trouble.clear()
    others = word("bad/1/ffffffffffffffff.1.0.0") | word("bad/1/ff.2.0.0", "n5", ended=True)
    second = await taken_over(bench, others | word(turn, "n2", ended=True) | word(turn, "n3", ended=True))
    await rest(3)
    assert second.tenure.host.node == "n2"
    assert (await bench.state_of("bad"))["seen"] == [1, 2]


def test_words_are_told_apart_by_their_partitions() -> None:
    hangs = Hangs("me")
    words = {hang_key(f"n{n}"): Hang(f"n{n}", n, "a", f"a/{n}") for n in (1, 2)}
    assert hangs.see(words, 0.0) == {1, 2}
    assert [[hang.node for hang in hangs.about(partition)] for partition in (0, 1, 2)] == [[], ["n1"], ["n2"]]


def test_what_has_changed_is_told_once() -> None:
    hangs = Hangs("me")
    assert hangs.see({}, 0.0) == set()
    assert hangs.see(word("t"), 1.0) == {0}
    assert hangs.is_standing("t", "bad")
    assert hangs.see(word("t"), 2.0) == set()
    assert hangs.see(word("t", ended=True), 3.0) == {0}
    assert not hangs.is_standing("t", "bad")
    assert [hang.node for hang in hangs.ended("t")] == ["n1"]
    assert hangs.settle("t") == [hang_key("n1")]
    assert hangs.see(word("t", ended=True), 4.0) == set()
    assert not hangs.any()
    assert hangs.see({}, 5.0) == set()
    assert hangs.see(word("t", ended=True), 6.0) == {0}  # it was deleted, and is another one now
    assert hangs.see({}, 7.0) == {0}


def test_what_is_stored_may_grow() -> None:
    assert Hang("n1", 7, "a", "a/1") == Hang("n1", 7, "a", "a/1", "", 0.0, ended=False, memory_mib=0.0, alone=False)
    [hang] = word("t").values()
    assert decode(encode(hang), Hang) == hang
    of_memory = Hang("a", 1, "j", "t", "w", 0.0, True, 3700.0)
    assert decode(encode(of_memory), Hang) == of_memory
    assert decode(encode({"node": "a", "partition": 1, "job": "j", "turn": "t", "later": 5}), Hang).turn == "t"
