"""What the adapter decides by itself: pairing, and which events a change amounts to. No members."""

import pytest

from tenure.scheduler.grid.hazelcast import HazelcastSettings
from tenure.scheduler.grid.hazelcast.ownership import Candidate, changes, choose_pair
from tenure.scheduler.grid.leaving import leaving
from tenure.scheduler.grid.port import Member, Ownership, OwnershipEvent

A, B, C = Member("a", "10.0.0.1", 5701), Member("b", "10.0.0.2", 5701), Member("c", "10.1.0.3", 5701)
FROM_B = [Candidate(A, "10.0.0.2"), Candidate(B, "10.0.0.2"), Candidate(C, "10.0.0.2")]


def test_the_member_on_the_same_host_is_nearest() -> None:
    assert choose_pair(FROM_B, HazelcastSettings(), "any") == "b"


def test_a_preferred_network_comes_before_the_host_and_a_named_member_before_all() -> None:
    assert choose_pair(FROM_B, HazelcastSettings(prefer_network="10.1.0.0/16"), "any") == "c"
    named = HazelcastSettings(prefer_network="10.1.0.0/16", pair_with="10.0.0.1:5701")
    assert choose_pair(FROM_B, named, "any") == "a"
    assert choose_pair(FROM_B[1:], named, "any") == "c", "while it is away, the next best"
    assert choose_pair([], named, "any") is None


def test_equals_are_spread_over_clients_and_kept_by_each() -> None:
    local = [Candidate(Member(f"m{n}", "127.0.0.1", 5701 + n), "127.0.0.1") for n in range(3)]
    chosen = {client: choose_pair(local, HazelcastSettings(), client) for client in map(str, range(60))}
    assert set(chosen.values()) == {"m0", "m1", "m2"}
    assert all(choose_pair(local[::-1], HazelcastSettings(), client) == pair for client, pair in chosen.items())


def test_one_that_comes_back_under_a_new_id_gets_its_clients_back() -> None:
    local = [Candidate(Member(f"m{n}", "127.0.0.1", 5701 + n), "127.0.0.1") for n in range(3)]
    back = [candidate._replace(member=candidate.member._replace(id=f"{candidate.member.id}'")) for candidate in local]
    for client in map(str, range(20)):
        assert choose_pair(back, HazelcastSettings(), client) == f"{choose_pair(local, HazelcastSettings(), client)}'"


def ownership(*members: Member, primaries: str = "", paired: str | None = None) -> Ownership:
    return Ownership(0, members, tuple(primaries), paired)


def test_changes_are_told_by_what_they_are() -> None:
    before = ownership(A, B, primaries="ab", paired="a")
    assert changes(before, before, frozenset("ab")) == []
    assert changes(before, before._replace(primaries=("b", "b")), frozenset("ab")) == [OwnershipEvent.PARTITIONS]
    assert changes(before, before._replace(paired="b"), frozenset("ab")) == [OwnershipEvent.MEMBERS]
    assert changes(before, ownership(A, primaries="aa", paired="a"), frozenset("ab")) == [
        OwnershipEvent.MEMBERS,
        OwnershipEvent.PARTITIONS,
    ]


def test_a_merge_shows_as_members_that_are_all_new() -> None:
    nobody = ownership()
    assert OwnershipEvent.MERGED not in changes(nobody, ownership(A, B), frozenset()), "the first ones ever"
    assert OwnershipEvent.MERGED not in changes(ownership(A, B), nobody, frozenset("ab")), "cut off"
    assert OwnershipEvent.MERGED not in changes(nobody, ownership(B, C), frozenset("ab")), "one has stayed"
    assert changes(nobody, ownership(C), frozenset("ab"))[0] is OwnershipEvent.MERGED


def test_a_member_that_gives_away_more_than_its_share_is_leaving() -> None:
    three = ownership(A, B, C, primaries="aaabbbccc")
    going = three._replace(primaries=tuple("aaabbbacc"))
    assert leaving(three, going) == {"c"}
    gone_on = going._replace(leaving=frozenset("c"))
    assert leaving(gone_on, gone_on) == {"c"}, "while nothing moves, too"
    assert leaving(gone_on, gone_on._replace(primaries=tuple("aaabbbabb"))) == {"c"}, "to its last one, and after it"
    assert leaving(gone_on, three) == frozenset(), "it gets some back"
    assert leaving(gone_on, ownership(A, B, primaries="aaabbbabb")) == frozenset(), "it is gone"


def test_who_makes_room_for_another_stays() -> None:
    two = ownership(A, B, primaries="aaabbb")
    came = ownership(A, B, C, primaries="aaabbb")
    assert leaving(two, came) == frozenset()
    assert leaving(came, came._replace(primaries=tuple("aacbbb"))) == frozenset()
    assert leaving(came, came._replace(primaries=tuple("aacbbc"))) == frozenset()
    died = ownership(A, C, primaries="aac")._replace(primaries=("a", "a", "c", None, None, None))
    assert leaving(ownership(A, B, C, primaries="aacbbb"), died) == frozenset(), "nobody gave anything away"
    assert leaving(ownership(), ownership(A, primaries="a")) == frozenset()
    assert leaving(two, ownership()) == frozenset()


@pytest.mark.parametrize("addresses", [(), ("localhost",), ("localhost:port",), (":5701",)])
def test_addresses_are_host_and_port(addresses: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"host:port"):
        HazelcastSettings(addresses=addresses)


def test_a_network_is_checked_at_once() -> None:
    with pytest.raises(ValueError, match="10"):
        HazelcastSettings(prefer_network="10.0.0.300/8")
