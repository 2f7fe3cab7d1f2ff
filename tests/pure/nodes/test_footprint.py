"""How much memory a node's process may take, by its settings and by what the system allows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.nodes import footprint
from tenure.nodes.footprint import Footprint

System = Callable[..., None]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    """A system with these limits, in which the process has taken so much."""

    def make(resident_mib: float, virtual_mib: float = 0.0, addresses_mib: float | None = None, **groups: str) -> None:
        monkeypatch.setattr(footprint.os, "sysconf", lambda name: 2**20)
        monkeypatch.setattr(footprint, "_STATM", tmp_path / "statm")
        monkeypatch.setattr(footprint, "_CGROUP", tmp_path / "cgroup")
        monkeypatch.setattr(footprint, "_CGROUPS", tmp_path / "groups")
        monkeypatch.setattr(footprint, "memory_limit_mib", lambda: None)
        limit = -1 if addresses_mib is None else int(addresses_mib * 2**20)
        monkeypatch.setattr("resource.getrlimit", lambda what: (limit, limit))
        (tmp_path / "statm").write_text(f"{virtual_mib:.0f} {resident_mib:.0f} 1 1 0 1 0\n")
        (tmp_path / "cgroup").write_text("0::/system/tenure\n")
        for name, text in groups.items():
            folder = tmp_path / "groups" / name.replace("_", "/")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "memory.max").write_text(text)

    return make


def test_a_limit_that_is_set(system: System) -> None:
    system(1001)
    assert Footprint(1000).excess_mib() == 1001
    assert Footprint(1001).excess_mib() == 0
    assert Footprint(0).excess_mib() == 0


def test_what_was_taken_of_it(system: System) -> None:
    system(250)
    assert Footprint(1000).share() == 0.25
    assert Footprint(100).share() == 2.5
    assert Footprint(0).share() == 0


def test_without_limits_there_is_none(system: System) -> None:
    system(10**6, 10**6, system_tenure="max\n")
    assert Footprint(None).excess_mib() == 0


@pytest.mark.parametrize("group", ["system_tenure", "system"])
def test_nine_tenths_of_what_its_group_or_one_around_it_may_take(system: System, group: str) -> None:
    limit = {group: str(1000 * 2**20)}
    system(899, **limit)
    assert Footprint(None).excess_mib() == 0
    system(901, **limit)
    assert Footprint(None).excess_mib() == 901
    assert Footprint(0).excess_mib() == 0


def test_a_container_sees_its_own_limit(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    system(901)
    monkeypatch.setattr(footprint, "memory_limit_mib", lambda: 1000)
    assert Footprint(None).excess_mib() == 901
    monkeypatch.setattr(footprint, "memory_limit_mib", lambda: 2**43)  # the older way to say: any
    assert Footprint(None).excess_mib() == 0


def test_nine_tenths_of_the_addresses_that_it_may_use(system: System) -> None:
    system(10, 899, 1000)
    assert Footprint(None).excess_mib() == 0
    system(10, 901, 1000)
    assert Footprint(None).excess_mib() == 901


def test_where_the_system_does_not_tell_nothing_is_too_much(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system(10)
    monkeypatch.setattr(footprint, "_STATM", tmp_path / "none")
    assert Footprint(1).excess_mib() == 0


def test_this_process_has_taken_something() -> None:
    assert 5 < Footprint(1).excess_mib() < 10_000
