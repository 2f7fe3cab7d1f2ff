"""Fencing tokens: they grow, fit into what databases and messages hold, and are no other cluster's."""

import itertools

import pytest
from msgspec import msgpack

from tenure.scheduler.cluster import find_or_form
from tenure.scheduler.context import Context
from tenure.scheduler.fences import (
    DAY_MS,
    FIRST_DAY_MS,
    FIRST_FORM,
    INCARNATION_MAX,
    LAST_DAY,
    Fences,
    first_epoch,
    first_incarnation,
    restored_epoch,
)
from tenure.scheduler.grid.port import Map
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.journal import Journal
from tenure.scheduler.keys import HEAD
from tenure.scheduler.tenure import Tenure
from tenure.scheduler.wire import Head, decode
from tests.pure.core.bench import Bench

SIGNED_MAX = 2**63 - 1


def filled(incarnation: int, epoch: int) -> tuple[int, int]:
    """The first token of a tenure, and one behind the last, after a group of turns that ran past the limit."""
    fences = Fences(incarnation, epoch)
    first = fences.next()
    fences._count = fences._count_max
    assert not fences.are_used_up()
    fences.next()
    assert fences.are_used_up()
    fences._count = 2 * fences._count_max - 2
    return first, fences.next()


@pytest.mark.parametrize("epochs", [(1, 2, 3), (2**22 - 3, 2**22 - 2, 2**22 - 1)])
def test_they_grow_over_tenures_epochs_and_incarnations(epochs: tuple[int, ...]) -> None:
    incarnations = (1, 2, FIRST_FORM - 1, FIRST_FORM, FIRST_FORM + 1, 127, 128, 129, INCARNATION_MAX)
    tokens = [token for pair in itertools.product(incarnations, epochs) for token in filled(*pair)]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] <= SIGNED_MAX


def test_those_of_few_incarnations_are_as_they_were() -> None:
    assert Fences(3, 5).next() == 3 << 56 | 5 << 32 | 1


def of_cluster(formed_ms: int, openings: int = 3) -> list[int]:
    """The tokens of a job in a cluster that was formed then, whose partitions were opened a second later."""
    incarnation = first_incarnation(formed_ms)
    epoch = first_epoch(incarnation, formed_ms + 1000)
    return [Fences(incarnation, epoch + n).next() for n in range(openings)]


NOON_MS = FIRST_DAY_MS + 700 * DAY_MS + DAY_MS // 2


@pytest.mark.parametrize("later_ms", [1000, 60_000, DAY_MS // 2 - 1, DAY_MS, 400 * DAY_MS])
def test_those_of_a_cluster_that_is_formed_later_are_higher(later_ms: int) -> None:
    assert max(of_cluster(NOON_MS)) < min(of_cluster(NOON_MS + later_ms)) <= SIGNED_MAX


def test_those_of_clusters_that_older_versions_have_formed_stay_as_they_are() -> None:
    assert first_epoch(1, NOON_MS) == 1
    assert first_incarnation(0) == 1
    assert max(of_cluster(0)) < min(of_cluster(NOON_MS))


@pytest.mark.parametrize("now_ms", [FIRST_DAY_MS, NOON_MS, 2**45, 2**62])
def test_whatever_the_clock_says_there_is_room_for_restores_and_openings(now_ms: int) -> None:
    incarnation = first_incarnation(now_ms)
    assert FIRST_FORM <= incarnation <= FIRST_FORM + LAST_DAY < INCARNATION_MAX - 30_000
    for its, at_ms in ((incarnation, now_ms), (incarnation + 1, now_ms), (FIRST_FORM, 2**62)):
        assert 1 <= first_epoch(its, at_ms) < 2**21
    assert 0 <= restored_epoch(now_ms) < 2**21


def test_a_restore_begins_with_the_epoch_of_its_second_of_the_day() -> None:
    """A snapshot that is restored at two places gives two sets of tokens, unless it is in the same second."""
    epochs = [restored_epoch(FIRST_DAY_MS + ms) for ms in (0, 999, 1000, DAY_MS - 1, DAY_MS)]
    assert epochs == [0, 0, 16, 16 * 86_399, 0]


class Fenced(Job):
    """Tells its token to whoever asks."""

    def on_message(self, ctx: Context, message: int) -> int:
        return ctx.fence


async def tokens_of(bench: Bench, incarnation: int, owners: int) -> list[int]:
    """Of a job that was restored so often, under one owner after another."""

    def restored(host: Host, journal: Journal) -> Tenure:
        host.incarnation = incarnation
        return Tenure(host, journal)

    tokens = []
    for _ in range(owners):
        opened = await bench.open(JobType("fenced", Fenced), make=restored)
        if not tokens:
            await bench.define("a", "fenced")
        for _ in range(2):
            answer = await bench.ask("a", 0)
            assert answer.ok, answer
            tokens.append(msgpack.decode(answer.body))
        await opened.kill()
    return tokens


async def test_turns_have_higher_ones_under_each_owner_and_after_each_restore(bench: Bench) -> None:
    """Also where a restored partition has had fewer owners than the one before."""
    before = await tokens_of(bench, 1, owners=3)
    after = await tokens_of(Bench(bench.nursery), 2, owners=1)
    assert before + after == sorted(set(before + after))


async def test_a_cluster_is_formed_with_the_incarnation_of_its_day(bench: Bench) -> None:
    """And its partitions with the epoch of their second."""
    grid = bench.cluster.connect()
    formed = await find_or_form(grid, "f", now_ms=NOON_MS)
    assert formed.incarnation == FIRST_FORM + 700
    stored = await grid.get(Map.HEADS, 0, HEAD)
    assert stored is not None
    assert decode(stored, Head).incarnation == formed.incarnation
    journal = bench.journal()
    journal.formation = "f"
    await journal.read()
    await journal.open("n", lambda: NOON_MS + 1000)
    assert journal.state.epoch == 1 + 16 * (DAY_MS // 2000 + 1)
    await journal.read()
    await journal.open("m", lambda: 0)
    assert journal.state.epoch == 2 + 16 * (DAY_MS // 2000 + 1), "by no clock, after that"
