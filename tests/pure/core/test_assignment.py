"""Who should own what, for any table and any nodes."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tenure.scheduler.assignment import (
    PICKLED,
    RULES,
    Assignment,
    NodeInfo,
    all_have_some,
    assign,
    is_settled,
    runs_all,
)
from tenure.scheduler.grid.port import Member, Ownership

MEMBERS = ("m1", "m2", "m3")
TYPES = ({"a": 1}, {"a": 1, "b": 1})

nodes_strategy = st.lists(
    st.builds(
        NodeInfo,
        id=st.sampled_from([f"n{n}" for n in range(6)]),
        beat=st.just(1),
        member=st.sampled_from(("", *MEMBERS)),
        types=st.sampled_from(TYPES),
        draining=st.booleans(),
        rules=st.sampled_from((1, 2, RULES, RULES, RULES)),
        unfit=st.sets(st.integers(0, 5), max_size=3).map(tuple),
    ),
    unique_by=lambda node: node.id,
    max_size=6,
)
tables = st.lists(st.sampled_from((*MEMBERS, None)), min_size=1, max_size=30).map(lambda primaries: table(*primaries))


def table(*primaries: str | None) -> Ownership:
    return Ownership(1, tuple(Member(id, "127.0.0.1", 5701) for id in MEMBERS), primaries, "m1")


def node(id: str, member: str = "", **fields: object) -> NodeInfo:
    return NodeInfo(id, 1, member=member, **{"types": TYPES[0], "rules": RULES, **fields})  # type: ignore[arg-type]


def able(nodes: list[NodeInfo], partition: int) -> list[NodeInfo]:
    staying = [node for node in nodes if not node.draining]
    if any(node.rules < 2 for node in nodes):
        most = max((len(node.types) for node in staying), default=0)
        return [node for node in staying if len(node.types) == most]
    return [node for node in staying if partition not in node.unfit] or staying


@given(tables, nodes_strategy)
def test_every_partition_has_an_owner_next_to_its_data_where_there_is_one(
    ownership: Ownership, nodes: list[NodeInfo]
) -> None:
    owners = assign((), ownership, nodes)
    assert len(owners) == len(ownership.primaries)
    for partition, (owner, primary) in enumerate(zip(owners, ownership.primaries, strict=True)):
        near = {node.id for node in able(nodes, partition) if node.member and node.member == primary}
        everyone = {node.id for node in able(nodes, partition)}
        assert owner in (near or everyone or {""})


@given(tables, nodes_strategy, st.integers(0, 2**32))
def test_it_depends_on_nothing_else_and_stays_as_it_is(ownership: Ownership, nodes: list[NodeInfo], seed: int) -> None:
    owners = assign((), ownership, nodes)
    Random(seed).shuffle(nodes)
    assert assign((), ownership, nodes) == owners
    assert assign(owners, ownership, nodes) == owners


@given(st.integers(1, 60), st.integers(1, 6))
def test_nodes_that_are_near_nothing_share_evenly(partitions: int, count: int) -> None:
    owners = assign((), table(*[None] * partitions), [node(f"n{n}") for n in range(count)])
    load = Counter(owners)
    assert max(load.values()) - min(load[f"n{n}"] for n in range(count)) <= 1


@given(st.integers(1, 60), st.integers(1, 5))
def test_a_new_node_takes_its_share_and_nothing_else_moves(partitions: int, count: int) -> None:
    nodes = [node(f"n{n}") for n in range(count)]
    before = assign((), table(*[None] * partitions), nodes)
    after = assign(before, table(*[None] * partitions), [*nodes, node("new")])
    moved = [now for was, now in zip(before, after, strict=True) if was != now]
    assert set(moved) <= {"new"}
    assert len(moved) <= partitions // (count + 1) + 1


@given(st.integers(1, 60), st.integers(2, 5))
def test_what_a_node_leaves_behind_is_all_that_moves(partitions: int, count: int) -> None:
    nodes = [node(f"n{n}") for n in range(count)]
    before = assign((), table(*[None] * partitions), nodes)
    after = assign(before, table(*[None] * partitions), nodes[1:])
    assert [was for was, now in zip(before, after, strict=True) if was != now] == ["n0"] * Counter(before)["n0"]


def test_a_draining_node_owns_nothing_also_if_it_is_the_last() -> None:
    assert assign(("n1",), table("m1"), [node("n1", "m1", draining=True), node("n2", "m2")]) == ("n2",)
    assert assign(("n1",), table("m1"), [node("n1", "m1", draining=True)]) == ("",)


def test_a_partition_goes_to_nodes_that_can_run_all_of_it() -> None:
    owners = assign(("n1", "n1"), table("m1", "m1"), [node("n1", "m1", unfit=(1,)), node("n2", "m2")])
    assert owners == ("n1", "n2")
    assert assign(("n1",), table("m1"), [node("n1", "m1", unfit=(0,)), node("n2", "m2", unfit=(0,))]) == ("n1",)


def test_the_oldest_rules_that_a_living_node_knows_are_in_force() -> None:
    """Else an older version and a newer one would take partitions from each other, as each sees it."""
    more, unfit = node("n2", types=TYPES[1]), node("n1", "m1", unfit=(0,))
    assert assign(("n1",), table("m1"), [node("n1", "m1"), more]) == ("n1",)
    assert assign(("n1",), table("m1"), [node("n1", "m1", rules=1), more]) == ("n2",)
    assert assign(("n1",), table("m1"), [unfit, node("n2")]) == ("n2",)
    assert assign(("n1",), table("m1"), [unfit, node("n2", rules=1)]) == ("n1",)
    assert assign(("n1",), table("m1"), [unfit, node("n2", rules=1, draining=True)]) == ("n1",)
    three = [node(id) for id in ("n1", "n2", "n3")]
    assert Counter(assign(("n1", "n1", "n2", "n2"), table(*[None] * 4), three)) == {"n1": 2, "n2": 1, "n3": 1}
    older = [*three[:2], node("n3", rules=2)]
    assert assign(("n1", "n1", "n2", "n2"), table(*[None] * 4), older) == ("n1", "n1", "n2", "n2")


def test_by_older_rules_who_came_last_may_have_none() -> None:
    """What an upgrade must not take for a fault of the new node."""
    nodes = [node(f"n{n:02}", rules=2) for n in range(17)]
    owners: tuple[str, ...] = ()
    for count in range(1, 18):
        owners = assign(owners, table(*[None] * 271), nodes[:count])
    new = node("new")
    assert "new" not in assign(owners, table(*[None] * 271), [*nodes, new])
    assert not all_have_some([*nodes, new], 271)
    assert all_have_some([new] * 18, 271)
    assert not all_have_some([new] * 18, 35)


def test_who_runs_what() -> None:
    able = node("n1", types={"a": 2, "b": 1}, allows_pickled=True)
    assert runs_all(able, {"a": 2, PICKLED: 1})
    assert not runs_all(able, {"a": 3})
    assert not runs_all(able, {"c": 1})
    assert not runs_all(node("n2"), {PICKLED: 1})


def test_two_nodes_of_one_member_share_what_is_there() -> None:
    owners = assign((), table("m1", "m1", "m1", "m1", "m2", "m2"), [node("a", "m1"), node("b", "m1"), node("c", "m2")])
    assert Counter(owners) == {"a": 2, "b": 2, "c": 2}
    assert owners[4:] == ("c", "c")


def test_by_older_rules_who_has_more_than_its_share_gives_up_what_is_beyond() -> None:
    ownership = table(*[None] * 10)
    one, two = node("one", rules=2), node("two", rules=2)
    alone = assign((), ownership, [one])
    assert set(alone) == {"one"}
    assert Counter(assign(alone, ownership, [one, two])) == {"one": 5, "two": 5}


def test_a_node_is_settled_when_it_serves_what_it_is_to_serve_and_nothing_is_to_move() -> None:
    ownership = table(*[None] * 4)
    one, two = node("one"), node("two")
    owners = assign((), ownership, [one, two])
    mine = tuple(partition for partition, owner in enumerate(owners) if owner == "one")
    published = Assignment(1, owners)
    assert len(mine) == 2
    for serving, settled in (
        ({"owned": mine}, True),
        ({"owned": mine[:1], "lost": mine[1:]}, True),
        ({"owned": mine[:1], "parked": {mine[1]: "an error"}}, True),
        ({"owned": mine[:1]}, False),
    ):
        found = node("one", **serving)  # type: ignore[arg-type]
        assert is_settled(found, published, ownership, [found, two]) is settled, serving
    whole = node("one", owned=(0, 1, 2, 3))
    assert not is_settled(whole, Assignment(1, ("one",) * 4), ownership, [whole, two]), "half of it is to move"
