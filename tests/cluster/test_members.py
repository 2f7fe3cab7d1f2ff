"""Members as child processes: they start, stop, and end with their parent, whatever ends it."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import trio

from tenure.members import (
    MemberDidNotStart,
    MemberSettings,
    PortTaken,
    SettingsMismatch,
    StoodAlone,
    TooLittleMemory,
    open_member,
    open_members,
    settle,
    start_member,
)
from tenure.nodes.embedded import open_embedded
from tenure.scheduler.grid.hazelcast import HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.port import GridError, Map

pytestmark = pytest.mark.cluster

SETTINGS = MemberSettings(cluster_name="member-tests", port=0, heap_initial_mib=64, heap_max_mib=256)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def watchers_of(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if child.name() in ("sh", "dash", "bash")]


async def test_a_member_is_up_while_it_is_open_and_leaves_nothing_behind() -> None:
    async with open_member(SETTINGS) as member:
        with socket.create_connection(member.address, timeout=2):
            pass
        assert member.running
        assert member.standing().members_seen == 1
        (watcher,) = watchers_of(member.pid)
        pid, config = member.pid, member._config
        listening = {c.laddr.ip for c in psutil.Process(pid).net_connections("tcp") if c.status == "LISTEN"}
        assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}, "it binds to loopback alone"
    assert not member.running
    assert gone(pid)
    with trio.fail_after(5):
        while watcher.is_running() and watcher.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
            await trio.sleep(0.02)
    assert not config.exists()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(member.address, timeout=2)


async def test_a_member_that_stops_hands_over_and_one_that_dies_is_covered_by_backups() -> None:
    async with open_members(replace(SETTINGS, member_count=2)) as members:
        first, second = members
        addresses = tuple(f"{host}:{port}" for host, port in (member.address for member in members))
        settings = HazelcastSettings(cluster_name=SETTINGS.cluster_name, addresses=addresses)
        async with HazelcastGrid.connect(settings) as grid:
            for partition in range(0, 271, 3):
                await grid.set(Map.JOURNAL, partition, b"key", b"%d" % partition)
            async with open_member(replace(SETTINGS, join=(first.address, second.address))) as third:
                await settle([*members, third])
                with trio.fail_after(10):  # clients are told a moment later
                    while third.id not in grid.ownership().primaries:  # noqa: ASYNC110
                        await trio.sleep(0.02)
                assert await third.stop()
            await settle(members)
            first.kill()
            assert not first.running
            with trio.fail_after(20):
                while set(grid.ownership().primaries) != {second.id}:  # noqa: ASYNC110
                    await trio.sleep(0.02)
            for partition in range(0, 271, 3):
                assert await grid.get(Map.JOURNAL, partition, b"key", timeout_s=10) == b"%d" % partition
    assert gone(second.pid)


async def test_pausing_freezes_a_member_at_once_and_it_goes_on_afterwards() -> None:
    async with open_member(SETTINGS) as member:
        member.pause()
        assert psutil.Process(member.pid).status() == psutil.STATUS_STOPPED
        member.unpause()
        with trio.fail_after(5):
            while psutil.Process(member.pid).status() == psutil.STATUS_STOPPED:  # noqa: ASYNC110
                await trio.sleep(0.01)
        member.pause()
        assert await member.stop(), "a paused member is woken to leave"


_PARENT = """
import sys, trio
from tenure.members import MemberSettings, start_member

async def main():
    member = await start_member(MemberSettings(cluster_name="orphan", port=0, heap_initial_mib=64, heap_max_mib=256))
    print(member.pid, flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "paused"])
def test_a_member_ends_when_its_parent_is_killed(frozen: bool) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        (watcher,) = watchers_of(pid)
        assert not gone(pid)
        if frozen:
            os.kill(pid, signal.SIGSTOP)
    finally:
        parent.kill()
        parent.communicate()
    deadline = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(pid)
    psutil.wait_procs([watcher], timeout=5)
    assert gone(watcher.pid)


async def test_the_watcher_costs_next_to_nothing() -> None:
    async with open_member(SETTINGS) as member:
        (watcher,) = watchers_of(member.pid)
        assert watcher.memory_info().rss < 4 * 2**20
        assert watcher.children() == []


async def test_a_taken_port_is_said_at_once_and_by_name() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Port {port} of 127.0.0.1 is taken") as caught:
            await start_member(replace(SETTINGS, port=port))
        assert caught.value.next_step


async def test_a_port_that_is_taken_while_java_starts_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.members.member._checked", lambda settings: settings)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTaken):
            await start_member(replace(SETTINGS, port=other.getsockname()[1]))


async def test_a_host_that_is_not_here_is_said() -> None:
    for port in (0, 5701):
        with pytest.raises(MemberDidNotStart, match=r"no interface with the address 203.0.113.7"):
            await start_member(replace(SETTINGS, host="203.0.113.7", port=port))


async def test_a_java_that_refuses_shows_its_own_words(tmp_path: Path) -> None:
    settings = replace(SETTINGS, jvm_options=("-XX:NoSuchOption",), log_file=tmp_path / "member.log")
    with pytest.raises(MemberDidNotStart, match="NoSuchOption"):
        await start_member(settings)
    assert os.listdir(tmp_path) == ["member.log"]


async def test_a_member_that_does_not_fit_in_is_not_left_alone() -> None:
    async with open_member(SETTINGS) as member:
        with pytest.raises(SettingsMismatch, match="partition count"):
            await start_member(replace(SETTINGS, partition_count=17, join=(member.address,)))
        with pytest.raises(StoodAlone, match=r"'another'.*its log is"):
            await start_member(replace(SETTINGS, cluster_name="another", join=(member.address,)))
        assert member.standing().members_seen == 1


async def test_a_member_that_runs_out_of_memory_says_so_and_what_to_do() -> None:
    async with open_member(replace(SETTINGS, heap_initial_mib=48, heap_max_mib=48)) as member:
        address = "%s:%d" % member.address  # noqa: UP031
        settings = HazelcastSettings(cluster_name=SETTINGS.cluster_name, addresses=(address,), op_deadline_s=1)
        async with HazelcastGrid.connect(settings) as grid:
            for number in range(100):
                if not member.running:
                    break
                with suppress(GridError):
                    await grid.set(Map.JOURNAL, number, b"key", bytes(2**20))
        with trio.fail_after(10):
            assert await member.wait() == 3
        why = member.why_ended()
    assert type(why) is TooLittleMemory
    assert "is full (48 MiB)" in why.what
    assert "--memory" in why.next_step


async def test_starting_is_given_up_in_time() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(MemberDidNotStart, match=r"was not up after 0.2 s"):
        await start_member(replace(SETTINGS, start_timeout_s=0.2))
    with trio.move_on_after(0.3) as scope:
        await start_member(SETTINGS)
    assert scope.cancelled_caught
    with trio.fail_after(5):
        while {c.pid for c in psutil.Process().children(recursive=True) if not gone(c.pid)} - before:  # noqa: ASYNC110
            await trio.sleep(0.02)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where embedded members log to, with what one has left that was killed long ago."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    old = tmp_path / f"embedded-of-{dead.pid}-tenure-0.log"
    old.write_text("")
    os.utime(old, (1, 1))
    monkeypatch.setattr("tenure.nodes.embedded.logs_folder", lambda: tmp_path)
    return tmp_path


async def test_an_embedded_member_that_ends_well_leaves_no_log(logs: Path) -> None:
    """Nobody has chosen its port: each would leave another one."""
    async with open_embedded():
        (log,) = os.listdir(logs)
        assert log.startswith(f"embedded-of-{os.getpid()}-tenure-")
    assert os.listdir(logs) == []
