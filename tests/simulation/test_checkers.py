"""A simulation is worth what its checkers see: each is shown right histories and wrong ones."""

from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
import trio

from tenure.scheduler.wire import Record, RecordKind, encode
from tenure.simulation.histories import Findings, Sent, judge_all, judge_increasing, judge_sender
from tenure.simulation.journal_check import RECORD_BYTES_MAX, JournalCheck
from tenure.simulation.trace import Trace
from tenure.simulation.workloads import newborns as told_of
from tenure.simulation.workloads.asking import judge_answers
from tenure.simulation.workloads.backups import Leaver, judge_leavers
from tenure.simulation.workloads.errands import Foreman, judge_errands
from tenure.simulation.workloads.fencing import Register, judge_register
from tenure.simulation.workloads.juggling import judge_rings
from tenure.simulation.workloads.lifecycle import Mayfly, Story, judge_lives
from tenure.simulation.workloads.newborns import Child, judge_child
from tenure.simulation.workloads.passing import Guise, judge_guise
from tenure.simulation.workloads.restoring import Mail, TurnNames, judge_restored
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


async def test_a_record_that_is_too_large() -> None:
    told = Told()
    told.opening("a", "")
    told.record("b", "a", node="n1")
    assert verdict(told.check.findings()) == "right"
    huge = encode(Record("c" * RECORD_BYTES_MAX, "b", RecordKind.TURNS, 1, "n1", 0))
    told.check.written("n1", 0, (9).to_bytes(8, "big"), huge)
    assert verdict(told.check.findings()) == "wrong"
    await trio.lowlevel.checkpoint()


def fenced(told: Told) -> None:
    told.record("b", "a")
    told.opening("c", "", epoch=2, node="restore")


def goes_on_behind_the_fence(told: Told) -> None:
    fenced(told)
    told.opening("d", "c", epoch=3, node="n2")
    told.record("e", "d", epoch=3, node="n2")


def goes_on_before_the_fence(told: Told) -> None:
    fenced(told)
    told.record("d", "b")


def both_go_on(told: Told) -> None:
    goes_on_behind_the_fence(told)
    told.record("f", "b")


def fenced_twice(told: Told) -> None:
    fenced(told)
    told.opening("x", "", epoch=3, node="restore")
    told.opening("d", "x", epoch=4, node="n2")
    told.record("e", "d", epoch=4, node="n2")


def goes_on_before_the_second_fence(told: Told) -> None:
    fenced_twice(told)
    told.opening("f", "c", epoch=3, node="n3")
    told.record("g", "f", epoch=3, node="n3")


@pytest.mark.parametrize(
    ("tell", "verdict_is"),
    [
        (fenced, "right"),
        (fenced_twice, "right"),
        (goes_on_before_the_second_fence, "wrong"),
        (goes_on_behind_the_fence, "right"),
        (goes_on_before_the_fence, "wrong"),
        (both_go_on, "wrong"),
    ],
)
async def test_journals_that_a_snapshot_is_restored_over(tell: Callable[[Told], None], verdict_is: str) -> None:
    told = Told()
    told.opening("a", "")
    tell(told)
    assert verdict(told.check.findings()) == verdict_is
    await trio.lowlevel.checkpoint()


# -- timers of handlers that wait, children, restores --------------------------------------------------


@pytest.mark.parametrize(
    ("rings", "asked", "verdict_is"),
    [
        ([("timeout", 5000), ("cron", 60_000)], [5000], "right"),
        ([("timeout", 5000), ("timeout", 5000)], [5000], "wrong"),
        ([("timeout", 5000), ("timeout", 5000)], [5000, 5000], "right"),
        ([("cron", 60_000), ("cron", 60_000)], [], "wrong"),
        ([("timeout", 7000)], [5000], "wrong"),
        ([], [5000], "waiting"),
        ([], [5000, 0], "right"),
        ([], [500_000], "right"),
    ],
)
def test_rings(rings: list[tuple[str, int]], asked: list[int], verdict_is: str) -> None:
    assert verdict(judge_rings("a", rings, [], asked, until_ms=100_000)) == verdict_is


def child(*heard: int) -> Child:
    return Child(heard=list(heard))


def about_a_child(*, removing: bool = False, removed: bool = False, scheduled: bool = True) -> told_of.Told:
    made = told_of.Told()
    made.sent, made.acknowledged, made.before_removal = 2, {0, 1}, {0}
    made.scheduled, made.removing, made.removed = scheduled, removing or removed, removed
    return made


@pytest.mark.parametrize(
    ("told", "living", "born", "died", "buried", "verdict_is"),
    [
        (about_a_child(), child(0, 1), 1, 0, [], "right"),
        (about_a_child(), child(0), 1, 0, [], "waiting"),
        (about_a_child(), child(0, 1), 0, 0, [], "waiting"),
        (about_a_child(), child(0, 1), 2, 0, [], "wrong"),
        (about_a_child(), child(1), 1, 0, [0], "wrong"),
        (about_a_child(), child(1, 0), 1, 0, [], "wrong"),
        (about_a_child(), None, 1, 0, [], "wrong"),
        (about_a_child(removing=True), None, 1, 1, [], "right"),
        (about_a_child(removing=True), child(0, 1), 1, 0, [], "right"),
        (about_a_child(removed=True), None, 1, 1, [1], "right"),
        (about_a_child(removed=True), None, 1, 0, [1], "waiting"),
        (about_a_child(removed=True), child(0), 1, 0, [1], "wrong"),
        (about_a_child(scheduled=False), None, 0, 0, [0, 1], "right"),
    ],
)
def test_children(
    told: told_of.Told, living: Child | None, born: int, died: int, buried: list[int], verdict_is: str
) -> None:
    entries = Counter({"born": born, "died": died})
    assert verdict(judge_child("a", told, living, entries, buried)) == verdict_is


@pytest.mark.parametrize(
    ("seen", "verdict_is"),
    [
        ([0, 1, 2, 3, 4], "right"),
        ([0, 4], "right"),
        ([0, 1], "waiting"),
        ([1, 4], "wrong"),
        ([0, 4, 4], "wrong"),
        ([0, 4, 2], "wrong"),
        ([0, 4, 9], "wrong"),
    ],
)
def test_what_was_restored(seen: list[int], verdict_is: str) -> None:
    mail = Mail()
    mail.count, mail.before, mail.since, mail.between = 5, {0}, {4}, {0, 1, 2}
    assert verdict(judge_restored("a", seen, mail)) == verdict_is


def test_names_of_turns() -> None:
    names = TurnNames()
    names.note("a/1/x", "message 1")
    names.note("a/1/x", "message 1")
    assert names.wrong == []
    names.note("a/1/x", "message 2")
    assert len(names.wrong) == 1


@pytest.mark.parametrize(
    ("living", "gone", "verdict_is"),
    [
        ({"a": Leaver(), "b": None}, [("b", 1)], "right"),
        ({"a": Leaver(), "b": Leaver()}, [], "waiting"),
        ({"a": Leaver(), "b": None}, [], "waiting"),
        ({"a": Leaver(), "b": None}, [("b", 0)], "wrong"),
        ({"a": Leaver(), "b": None}, [("b", 1), ("b", 1)], "wrong"),
        ({"a": Leaver(), "b": Leaver()}, [("b", 1)], "wrong"),
    ],
)
def test_who_has_left(living: dict[str, Leaver | None], gone: list[tuple[str, int]], verdict_is: str) -> None:
    assert verdict(judge_leavers(living, gone, {"b"})) == verdict_is


@pytest.mark.parametrize(
    ("got", "life", "verdict_is"),
    [
        ([1, 2], 3, "right"),
        (["1", "2"], 3, "right"),
        ([1], 3, "waiting"),
        ([1, 1, 2], 3, "wrong"),
        ([1, 2], 2, "wrong"),
    ],
)
def test_what_was_right_for_a_job_has_reached_it(got: list[int | str], life: int, verdict_is: str) -> None:
    guise = Guise()
    guise.life, guise.acknowledged = 3, {1, 2}
    assert verdict(judge_guise("a", guise, got, life)) == verdict_is


@pytest.mark.parametrize(
    ("asked", "ended", "verdict_is"),
    [
        ([0, 1], [(0, "succeeded", "a"), (1, "cancelled", "None")], "right"),
        ([0, 1], [(0, "succeeded", "a"), (1, "succeeded", "b")], "right"),
        ([0, 1], [(1, "cancelled", "None")], "waiting"),
        ([], [], "waiting"),
        ([0, 0, 1], [(0, "succeeded", "a"), (1, "cancelled", "None")], "wrong"),
        ([0, 1], [(0, "succeeded", "a"), (0, "succeeded", "a")], "wrong"),
        ([0, 1], [(0, "succeeded", "c")], "wrong"),
        ([0, 1], [(0, "cancelled", "None")], "wrong"),
        ([0, 1], [(0, "failed", "None")], "wrong"),
    ],
)
def test_errands_end_once_and_as_they_did(asked: list[int], ended: list[tuple[int, str, str]], verdict_is: str) -> None:
    brought = {0: {"a"}, 1: {"b"}}
    found = judge_errands("f", Foreman(asked=asked, ended=ended), {0, 1}, {0}, {1}, brought)
    assert verdict(found) == verdict_is
