"""The contract suite's rig on real members.

Members outlive tests, because starting them is what costs: one set of them for each kind of cluster, which
is brought back to its size when the next test wants it. They end with the process of the tests.
"""

import atexit
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from tenure.members import Member, MemberSettings, settle, start_member
from tenure.scheduler.grid.hazelcast import HazelcastGrid, HazelcastSettings
from tenure.scheduler.grid.port import Grid
from tests.contract.adapters import Adapter, Rig

_SETTINGS = MemberSettings(cluster_name="contract", heap_initial_mib=64, heap_max_mib=256)


class HazelcastRig(Rig):
    hint_s = 5.0
    fault_s = 20.0
    slack_s = 0.3

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.running: list[Member] = []
        """Oldest first."""
        atexit.register(lambda: [member.kill() for member in self.running])

    def _addresses(self, first: str | None = None) -> tuple[str, ...]:
        addresses = [f"{host}:{port}" for host, port in (member.address for member in self.running)]
        return tuple(sorted(addresses, key=lambda address: address != first))

    @asynccontextmanager
    async def connect(self, member: str | None = None) -> AsyncIterator[Grid]:
        pair_with = None
        if member is not None:
            host, port = self._find(member).address
            pair_with = f"{host}:{port}"
        settings = HazelcastSettings(
            cluster_name=self.settings.cluster_name, addresses=self._addresses(pair_with), pair_with=pair_with
        )
        async with HazelcastGrid.connect(settings) as grid:
            with trio.fail_after(self.fault_s):
                # It is usable with its first connection; the member it was told to pair with may be the second.
                while member is not None and grid.ownership().paired != member:  # noqa: ASYNC110
                    await trio.sleep(0.02)
            yield grid

    async def members(self) -> list[str]:
        return [member.id for member in self.running]

    def _find(self, id: str) -> Member:
        return next(member for member in self.running if member.id == id)

    async def add_member(self) -> str:
        joined = await start_member(
            replace(self.settings, port=0, join=tuple(member.address for member in self.running))
        )
        self.running.append(joined)
        return joined.id

    async def kill_member(self, id: str) -> None:
        member = self._find(id)
        member.kill()
        self.running.remove(member)

    async def leave_member(self, id: str) -> None:
        member = self._find(id)
        assert await member.stop()
        self.running.remove(member)

    async def pause_member(self, id: str) -> None:
        self._find(id).pause()

    async def unpause_member(self, id: str) -> None:
        self._find(id).unpause()

    async def repair(self, members: int) -> None:
        """Make it a cluster of so many members, with everything in place."""
        self.running = [member for member in self.running if member.running]
        for member in self.running:
            member.unpause()
        while len(self.running) > members:
            await self.running.pop().stop()
        while len(self.running) < members:
            await self.add_member()
        async with self.connect():  # partitions are dealt out when somebody asks for one
            await settle(self.running)


class Hazelcast(Adapter):
    name = "hazelcast"

    def __init__(self) -> None:
        self._rigs: dict[tuple[int, int, bool], HazelcastRig] = {}

    @asynccontextmanager
    async def open(self, *, members: int = 1, backups: int = 1, split_protection: bool = False) -> AsyncIterator[Rig]:
        kind = members, backups, split_protection
        if kind not in self._rigs:
            member_count = members if split_protection else min(members, 2)  # from three on, it means protection
            name = f"contract-{members}-{backups}-{split_protection}"
            self._rigs[kind] = HazelcastRig(
                replace(_SETTINGS, cluster_name=name, member_count=member_count, backups=backups)
            )
        rig = self._rigs[kind]
        await rig.repair(members)
        try:
            yield rig
        finally:
            for member in rig.running:
                if member.running:
                    member.unpause()
