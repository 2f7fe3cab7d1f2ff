"""Nodes share partitions evenly, however many come and go."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tenure.scheduler.assignment import RULES, NodeInfo, assign
from tenure.scheduler.grid.port import Member, Ownership

MEMBERS = ("m1", "m2", "m3")


def grid(*primaries: str | None) -> Ownership:
    return Ownership(1, tuple(Member(id, "127.0.0.1", 5701) for id in MEMBERS), primaries, "m1")


def node(id: str, member: str | None = "") -> NodeInfo:
    return NodeInfo(id, 1, member=member or "", rules=RULES)


@given(st.integers(1, 60), st.lists(st.integers(0, 9), max_size=20), st.sampled_from(((None,), MEMBERS[:1], MEMBERS)))
def test_however_nodes_come_and_go_all_have_as_many_or_one_more(
    partitions: int, changes: list[int], members: tuple[str | None, ...]
) -> None:
    ownership = grid(*(members[n % len(members)] for n in range(partitions)))
    nodes = {n: node(f"n{n}", members[0] if len(members) == 1 else "") for n in (0, 1)}
    owners: tuple[str, ...] = ()
    for n in changes:
        if n not in nodes:
            nodes[n] = node(f"n{n}", members[0] if len(members) == 1 else "")
        elif len(nodes) > 1:
            del nodes[n]
        before, owners = owners, assign(owners, ownership, nodes.values())
        load = [owners.count(node.id) for node in nodes.values()]
        assert max(load) - min(load) <= 1
        ids = {node.id for node in nodes.values()}
        kept = sum(was == now for was, now in zip(before, owners, strict=False))
        had = Counter(was for was in before if was in ids)
        level, rest = divmod(partitions, len(nodes))
        at_most = sorted(had.values(), reverse=True)
        assert kept == sum(min(has, level + (n < rest)) for n, has in enumerate(at_most))  # no more moves than needed


def test_the_eighteenth_node_gets_its_share_of_the_partitions_that_there_are() -> None:
    """It got none: seventeen others had 16 each at most, which was the largest share of eighteen, too."""
    ownership = grid(*["m1"] * 271)
    owners: tuple[str, ...] = ()
    for count in range(1, 41):
        owners = assign(owners, ownership, [node(f"n{n:02}", "m1") for n in range(count)])
        assert set(Counter(owners).values()) <= {271 // count, 271 // count + 1}
        assert len(set(owners)) == count


def test_who_has_much_of_others_gets_less_of_what_all_may_have() -> None:
    nodes = [node("a", "m1"), node("b", "m2"), node("c", "m2")]
    owners = assign((), grid(*["m1"] * 4, "m2", *[None] * 6), nodes)
    assert set(owners[:4]) == {"a"}
    assert sorted(Counter(owners).values()) == [3, 4, 4]
