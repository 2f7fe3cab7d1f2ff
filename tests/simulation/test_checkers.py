"""A simulation is worth what its checkers see: each is shown right histories and wrong ones."""

from collections import defaultdict
from collections.abc import Callable

import pytest
import trio

from tenure.scheduler.wire import Record, RecordKind, encode
from tenure.simulation.histories import Findings, Sent, judge_all, judge_increasing, judge_sender
from tenure.simulation.journal_check import JournalCheck
from tenure.simulation.trace import Trace
from tenure.simulation.workloads.asking import judge_answers
from tenure.simulation.workloads.fencing import Register, judge_register
from tenure.simulation.workloads.lifecycle import Mayfly, Story, judge_lives
from tenure.simulation.workloads.timing import MINUTE_MS, judge_crons, judge_fires
from tenure.simulation.workloads.topics import judge_alike
from tenure.simulation.workloads.transfers import START, Account, judge_accounts


def sent(count: int, *acknowledged: int) -> Sent:
    made = Sent()
    for _ in range(count):
        made.next()
    made.acknowledged.update(acknowledged)
    return made


def verdict(found: Findings) -> str:
    return "wrong" if found.wrong else "waiting" if found.waiting else "right"


# -- messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "verdict_is"),
    [
        ([0, 1, 2], "right"),
        ([0, 1], "right"),
        ([0, 2], "wrong"),
        ([1], "wrong"),
        ([0], "waiting"),
        ([], "waiting"),
        ([0, 1, 1], "wrong"),
        ([1, 0], "wrong"),
        ([0, 1, 3], "wrong"),
    ],
)
def test_messages_of_one_sender(seen: list[int], verdict_is: str) -> None:
    assert verdict(judge_sender("a", seen, sent(3, 0, 1))) == verdict_is


def test_without_a_promised_order_what_was_passed_over_may_still_come() -> None:
    assert verdict(judge_sender("a", [1, 0], sent(2, 0, 1), ordered=False)) == "right"
    assert verdict(judge_sender("a", [1], sent(2, 0, 1), ordered=False)) == "waiting"
    assert verdict(judge_sender("a", [1, 1], sent(2, 1), ordered=False)) == "wrong"


def test_a_sender_that_nobody_knows() -> None:
    assert verdict(judge_all("a", {"x": [0]}, {})) == "wrong"
    assert verdict(judge_all("a", {}, {"x": sent(1, 0)})) == "waiting"


def test_what_must_grow() -> None:
    assert verdict(judge_increasing("a", "it", [1, 2, 5])) == "right"
    assert verdict(judge_increasing("a", "it", [1, 2, 2])) == "wrong"


def test_what_one_subscriber_has_all_must_get() -> None:
    assert verdict(judge_alike("it", {"a": {"s": [0, 1]}, "b": {"s": [0, 1]}})) == "right"
    assert verdict(judge_alike("it", {"a": {"s": [0, 1]}, "b": {"s": [0]}})) == "waiting"


# -- answers, transfers, tokens -----------------------------------------------------------------------


def test_an_answer_that_did_not_last() -> None:
    assert verdict(judge_answers("a", [7, 8], {7: 1, 8: 2})) == "right"
    assert verdict(judge_answers("a", [8], {8: 2})) == "wrong"
    assert verdict(judge_answers("a", [8, 7], {7: 1})) == "wrong"


def account(balance: int, orders: list[int], given: dict[str, int], taken: dict[str, list[int]]) -> Account:
    made = Account()
    made.balance, made.orders, made.given, made.taken = START + balance, orders, given, taken
    return made


@pytest.mark.parametrize(
    ("giver", "taker", "verdict_is"),
    [
        (account(-5, [0], {"b": 1}, {}), account(5, [], {}, {"a": [0]}), "right"),
        (account(-5, [0], {"b": 1}, {}), account(0, [], {}, {}), "waiting"),
        (account(0, [], {}, {}), account(0, [], {}, {}), "waiting"),
        (account(-5, [0], {"b": 1}, {}), account(6, [], {}, {"a": [0]}), "wrong"),
        (account(-5, [0], {"b": 1}, {}), account(10, [], {}, {"a": [0, 0]}), "wrong"),
        (account(-5, [0, 0], {"b": 2}, {}), account(10, [], {}, {"a": [0, 1]}), "wrong"),
        (account(-5, [9], {"b": 1}, {}), account(5, [], {}, {"a": [0]}), "wrong"),
    ],
)
def test_transfers(giver: Account, taker: Account, verdict_is: str) -> None:
    assert verdict(judge_accounts({"a": giver, "b": taker}, {0: "a"}, {0})) == verdict_is


def test_a_register_refuses_stale_tokens_and_what_it_refused_must_not_count() -> None:
    register = Register()
    assert register.write("a", 5, 1)
    assert not register.write("a", 4, 2)
    accepted = register.accepted["a"]
    assert accepted == [(5, 1)]
    assert verdict(judge_register("a", [(5, 1)], accepted)) == "right"
    assert verdict(judge_register("a", [(4, 2)], accepted)) == "wrong"
    assert verdict(judge_register("a", [(5, 1), (5, 1)], accepted)) == "wrong"
    assert verdict(judge_register("a", [(5, 1)], [(5, 1), (6, 1)])) == "waiting"


# -- lives --------------------------------------------------------------------------------------------


def end(life: int, *seen: int, starts: int = 1) -> dict[str, object]:
    return {"id": "a", "life": life, "seen": list(seen), "starts": starts}


def living(life: int, *seen: int) -> Mayfly:
    return Mayfly(life=life, seen=list(seen), starts=1)


@pytest.mark.parametrize(
    ("ends", "alive", "buried", "verdict_is"),
    [
        ([end(1, 0)], living(2, 1), [2], "right"),
        ([], living(2, 1), [0, 2], "waiting"),
        ([end(1, 0)], living(2, 1), [], "waiting"),
        ([end(1, 0), end(1, 0)], living(2, 1), [2], "wrong"),
        ([end(1, 0)], living(1, 1), [2], "wrong"),
        ([end(1, 0, starts=2)], living(2, 1), [2], "wrong"),
        ([end(1)], living(2, 1), [0, 2], "wrong"),
        ([end(1, 0)], living(2, 0, 1), [2], "wrong"),
        ([end(1, 0)], living(2, 1), [2, 7], "wrong"),
        ([end(2, 1), end(1, 0)], None, [2], "wrong"),
    ],
)
def test_lives(ends: list[dict[str, object]], alive: Mayfly | None, buried: list[int], verdict_is: str) -> None:
    story = Story()
    story.lives, story.messages, story.acknowledged = 2, {0, 1, 2}, {0, 1, 2}
    story.confirmed = defaultdict(set, {1: {0}})
    story.removed = {1}
    assert verdict(judge_lives("a", story, ends, alive, buried)) == verdict_is


# -- time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fires", "set_for", "early", "verdict_is"),
    [
        ([10, 20], [10, 20, 99_000], [], "right"),
        ([10], [10, 20], [], "waiting"),
        ([10, 10], [10, 20], [], "wrong"),
        ([20], [10, 20], [], "wrong"),
        ([10], [10, 20], [10], "wrong"),
    ],
)
def test_timers(fires: list[int], set_for: list[int], early: list[int], verdict_is: str) -> None:
    assert verdict(judge_fires("a", fires, set_for, early, until_ms=9_000)) == verdict_is


@pytest.mark.parametrize(
    ("minutes", "catches_up", "verdict_is"),
    [
        ([1, 2, 3], True, "right"),
        ([1, 3], True, "wrong"),
        ([1, 3], False, "right"),
        ([1], True, "waiting"),
        ([1, 1], False, "wrong"),
        ([0], False, "wrong"),
        ([1.5], False, "wrong"),
    ],
)
def test_crons(minutes: list[float], catches_up: bool, verdict_is: str) -> None:
    rings = [round(minute * MINUTE_MS) for minute in minutes]
    found = judge_crons("a", rings, since_ms=5_000, until_ms=4 * MINUTE_MS, catches_up=catches_up)
    assert verdict(found) == verdict_is


# -- the journal --------------------------------------------------------------------------------------


class Told:
    """A journal's history, told record by record."""

    def __init__(self) -> None:
        self.check = JournalCheck(Trace())
        self.slot = 0

    def record(
        self, id: str, after: str, *, kind: int = RecordKind.TURNS, epoch: int = 1, node: str = "n1", heard: bool = True
    ) -> None:
        stored = encode(Record(id, after, kind, epoch, node, 0))
        key = self.slot.to_bytes(8, "big")
        self.slot += 1
        self.check.written(node, 0, key, stored)
        if heard:
            self.check.acknowledged(node, 0, key, stored)

    def opening(self, id: str, after: str, *, epoch: int = 1, node: str = "n1") -> None:
        self.record(id, after, kind=RecordKind.OPENING, epoch=epoch, node=node)


def one_log(told: Told) -> None:
    told.record("b", "a")
    told.opening("c", "b", epoch=2, node="n2")
    told.record("d", "c", epoch=2, node="n2")


def nobody_was_told(told: Told) -> None:
    told.record("b", "a", heard=False)
    told.opening("c", "a", epoch=2, node="n2")
    told.record("d", "c", epoch=2, node="n2")


def a_zombie(told: Told) -> None:
    told.record("b", "a")
    told.opening("c", "a", epoch=2, node="n2")
    told.record("d", "c", epoch=2, node="n2")


def a_zombie_in_the_log(told: Told) -> None:
    told.opening("c", "a", epoch=2, node="n2")
    told.record("b", "c")


def an_epoch_left_out(told: Told) -> None:
    told.opening("c", "a", epoch=3)
    told.record("d", "c", epoch=3)


def a_predecessor_that_never_was(told: Told) -> None:
    told.record("b", "nowhere")


def two_contents(told: Told) -> None:
    told.record("b", "a")
    told.record("b", "a", kind=RecordKind.CLOSING)


@pytest.mark.parametrize(
    ("tell", "verdict_is"),
    [
        (one_log, "right"),
        (nobody_was_told, "right"),
        (a_zombie, "wrong"),
        (a_zombie_in_the_log, "wrong"),
        (an_epoch_left_out, "wrong"),
        (a_predecessor_that_never_was, "wrong"),
        (two_contents, "wrong"),
    ],
)
async def test_journals(tell: Callable[[Told], None], verdict_is: str) -> None:
    told = Told()
    told.opening("a", "")
    tell(told)
    assert verdict(told.check.findings()) == verdict_is


async def test_what_is_no_record_may_not_be_written() -> None:
    check = JournalCheck(Trace())
    check.written("n1", 0, bytes(8), b"\x01\x00rubbish")
    assert verdict(check.findings()) == "wrong"
    await trio.lowlevel.checkpoint()
