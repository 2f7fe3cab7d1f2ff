"""Placement is a pure function: even, complete, and it moves little."""

from hypothesis import given
from hypothesis import strategies as st

from tenure.scheduler.grid.memory.placement import rebalanced, survivors

members = st.lists(st.sampled_from([f"m{number}" for number in range(7)]), min_size=1, max_size=6, unique=True)


def spread(rows: list[tuple[str, ...]], members: list[str], place: int) -> int:
    counts = [sum(row[place] == member for row in rows) for member in members]
    return max(counts) - min(counts)


@given(members, members, st.integers(1, 60), st.integers(1, 3))
def test_every_partition_has_its_copies_on_different_members(
    before: list[str], after: list[str], partitions: int, copies: int
) -> None:
    rows = rebalanced(rebalanced([()] * partitions, before, copies), after, copies)
    for row in rows:
        assert len(row) == len(set(row)) == min(copies, len(after))
        assert set(row) <= set(after)
    assert spread(rows, after, 0) <= 1


@given(members, st.integers(1, 60), st.integers(1, 3))
def test_what_is_even_stays_as_it_is(members: list[str], partitions: int, copies: int) -> None:
    rows = rebalanced([()] * partitions, members, copies)
    assert rebalanced(rows, members, copies) == rows


def test_the_backup_of_a_dead_primary_is_primary() -> None:
    assert survivors([("a", "b", "c"), ("b", "a"), ("c",)], ["b", "c"]) == [("b", "c"), ("b",), ("c",)]


def test_a_member_that_joins_takes_no_more_than_its_share() -> None:
    before = rebalanced([()] * 30, ["a", "b"], 2)
    after = rebalanced(before, ["a", "b", "c"], 2)
    assert sum(old[0] != new[0] for old, new in zip(before, after, strict=True)) == 10


def test_without_members_nobody_holds_anything() -> None:
    assert rebalanced([("a",), ("b",)], [], 2) == [(), ()]
