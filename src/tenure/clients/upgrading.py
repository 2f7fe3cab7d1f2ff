"""Replacing nodes by newer ones, some at a time, as long as all is well.

start the new ──► they serve their share, answer, fail no more jobs than before ──► drain the old ──► the next
                    └── not so: stop here, and say what to do. The old ones that are left go on
"""

import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import trio

from tenure.clients.quiescing import Tell
from tenure.clients.scaling import address_of, left, settled, tell
from tenure.clients.views import UpgradeStatus
from tenure.jobs.spawning import Spawned, spawned_by, split
from tenure.nodes.neighbours import Neighbours
from tenure.scheduler import upgrades
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import Mistake, NotDone, UnknownNode, UpgradeStopped, UpgradeUnderWay
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.nodes_seen import live_nodes, said_nodes
from tenure.scheduler.orders import Order
from tenure.scheduler.upgrade_plan import UpgradePlan, forget_plan, keep_plan, read_plan

__all__ = ["finalize", "plan_upgrade", "upgrade", "upgrade_status"]

STEP_S = 120.0
WATCH_S = 3.0
TOUCH_EVERY_S = 5.0
SILENT_LOOKS = 3
"""A heart that stands still for one look may be that of a busy machine."""
COUNT_EVERY_S = 5.0
"""Counting asks every partition."""
POLL_S = 0.1
END_S = 10.0


async def plan_upgrade(client: GridClient, nodes: Sequence[str] | None) -> list[str]:
    """The nodes that would be replaced, in order: these (ids or names), or those that an upgrade that was stopped has
    left, or all that live."""
    alive = {info.id: info for info in await live_nodes(client.grid)}
    if nodes is not None:
        return _named(list(alive.values()), nodes)
    plan = await read_plan(client.grid)
    if plan is not None and (there := [id for id in plan.left if id in alive]):
        return there
    return sorted(alive, key=lambda id: (alive[id].name, id))


def _named(alive: list[NodeInfo], nodes: Sequence[str]) -> list[str]:
    found = []
    for wanted in nodes:
        ids = [info.id for info in alive if wanted in (info.id, info.name)]
        if not ids:
            raise UnknownNode(
                f"no living node is called {wanted!r}; there are {', '.join(i.id for i in alive) or 'none'}"
            )
        found += [id for id in ids if id not in found]
    return found


async def upgrade(
    client: GridClient,
    spawn: str | Sequence[str],
    nodes: Sequence[str] | None = None,
    at_once: int = 1,
    watch_s: float = WATCH_S,
    log_folder: str | PathLike[str] | None = None,
    on_step: Tell | None = None,
    timeout_s: float | None = None,
) -> dict[str, str]:
    """Returns which node came for which."""
    if at_once < 1:
        raise Mistake(f"at least one node is replaced at once, not {at_once}")
    command, old = split(spawn), await plan_upgrade(client, nodes)
    if not old:
        raise UnknownNode("no node lives: start one, there is nothing to upgrade")
    work = _Upgrade(client, command, old, watch_s, None if log_folder is None else Path(log_folder), on_step)
    work.step_s = STEP_S if timeout_s is None else timeout_s
    is_done = False
    try:
        while work.plan.left:
            await work.replace(work.plan.left[:at_once])
        is_done = True
    finally:
        await work.end(is_done)
    return work.plan.replaced


class _Upgrade:
    """One that is under way."""

    def __init__(
        self,
        client: GridClient,
        command: list[str],
        old: list[str],
        watch_s: float,
        log_folder: Path | None,
        on_step: Tell | None,
    ) -> None:
        self.client, self.grid, self.command = client, client.grid, command
        self.watch_s, self.log_folder, self.on_step = watch_s, log_folder, on_step
        self.step_s = STEP_S
        now_ms = _now_ms()
        by = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(2)}"
        self.plan = UpgradePlan(by=by, command=" ".join(command), left=old, at_ms=now_ms, touched_ms=now_ms)
        self._spawned: list[Spawned] = []
        self._count = len(old)

    # -- one step ---------------------------------------------------------------------------------

    async def replace(self, old: list[str]) -> None:
        """Start as many as these, and drain these when all is well with those."""
        await self._keep(self.plan)
        before = {info.id for info in await live_nodes(self.grid)}
        ailing = await self._ailing()
        self._say(f"starting {len(old)} in place of {', '.join(old)}")
        self._spawned = [await spawned_by(self.command, address_of(self.grid), self.log_folder) for _ in old]
        new = await self._come(before, len(old))
        await self._watch(new, ailing)
        for id in old:
            await self._drain(id)
        await self._keep(self.plan.with_replaced(old, new, _now_ms()))
        self._say(f"{', '.join(new)} in place of {', '.join(old)}: {len(self.plan.replaced)} of {self._count} done")

    async def _come(self, before: set[str], count: int) -> list[str]:
        with trio.move_on_after(self.step_s):
            while True:
                new = [id for id in await settled(self.grid) if id not in before]
                if len(new) >= count:
                    return new
                for one in self._spawned:
                    if one.ended():
                        raise self._stopped(f"the new node has ended with exit code {one.ended()}: {one.last_words()}")
                self._say(f"waiting until {count} new nodes serve their share")
                await self._keep(self.plan)
                await trio.sleep(POLL_S)
        raise self._stopped(f"not all of {count} new nodes serve their share after {self.step_s:g} s")

    async def _watch(self, new: list[str], ailing: int) -> None:
        """For a while: do they answer, can they run what they have, and do no more jobs fail?"""
        end_s = trio.current_time() + self.watch_s
        count_s = trio.current_time() + COUNT_EVERY_S
        silent = 0
        while True:
            infos = [info for info in await live_nodes(self.grid) if info.id in new]
            gone = sorted(set(new) - {info.id for info in infos})
            silent = silent + 1 if gone else 0
            if silent == SILENT_LOOKS:
                raise self._stopped(f"the new node {', '.join(gone)} has fallen silent")
            for info in infos:
                await self._check(info)
            is_over = trio.current_time() >= end_s and not silent
            if not is_over and trio.current_time() < count_s:
                await self._pause(f"watching {', '.join(new)}")
                continue
            count_s = trio.current_time() + COUNT_EVERY_S
            if (now := await self._ailing()) > ailing:
                raise self._stopped(
                    f"{now - ailing} more jobs have failed or can't run than before: see "
                    "`tenure jobs state=failed or state=stuck`"
                )
            if is_over:
                return

    async def _pause(self, what: str) -> None:
        self._say(what)
        await self._keep(self.plan)
        await trio.sleep(min(0.5, self.watch_s))

    async def _check(self, info: NodeInfo) -> None:
        if info.lost:
            raise self._stopped(f"the new node {info.id} reports {len(info.lost)} lost partitions")
        few = 2 * len(await live_nodes(self.grid)) <= self.grid.partition_count  # there is something for each
        if info.unfit or (few and not info.owned):
            can_not = f"can't read or run all of {len(info.unfit)} partitions (its log says why)"
            raise self._stopped(
                f"the new node {info.id} {can_not if info.unfit else 'gets no partition'}; job types that it does not "
                f"know, or knows in older versions: {await self._unknown_to(info) or 'none'}"
            )
        if info.owned:
            try:
                await self.client.command(info.owned[0], "", {"op": "status"}, deadline_s=self.step_s)
            except NotDone as error:
                raise self._stopped(
                    f"partition {info.owned[0]} of the new node {info.id} does not answer: {error}"
                ) from error

    async def _unknown_to(self, new: NodeInfo) -> str:
        missing = {
            f"{type} {version}"
            for info in await live_nodes(self.grid)
            for type, version in info.types.items()
            if new.types.get(type, 0) < version
        }
        return ", ".join(sorted(missing))

    async def _ailing(self) -> int:
        """Jobs that have failed, or can't run where they are."""
        rows = await self.client.directory.partitions(deadline_s=self.step_s)
        if all("failed" in row for row in rows):
            return sum(row["failed"] + row["stuck"] for row in rows)
        jobs = await self.client.directory.jobs(deadline_s=self.step_s)  # an older version counts nothing
        return sum(job["status"] == "failed" or bool(job["stuck"]) for job in jobs)

    async def _drain(self, id: str) -> None:
        info = next((info for info in await said_nodes(self.grid) if info.id == id), None)
        if info is None:
            return
        self._say(f"draining {id}")
        with trio.move_on_after(self.step_s):
            await self._tell_to_leave(info)
            while True:
                with trio.move_on_after(TOUCH_EVERY_S):
                    await left(self.grid, id)
                    return
                await self._keep(self.plan)
        raise self._stopped(
            f"{id} has not handed over within {self.step_s:g} s. It was told to, and leaves when it can: look for long "
            "turns"
        )

    async def _tell_to_leave(self, info: NodeInfo) -> None:
        if info.rules >= 2:
            await tell(self.grid, info.id, Order(leave=True))
            return
        here = Neighbours()
        if not info.host or info.host != here.host or here.is_gone(info):
            raise self._stopped(
                f"{info.id} is of an older version, which takes no orders from elsewhere: end it with SIGTERM (process "
                f"{info.pid} on its machine)"
            )
        os.kill(info.pid, signal.SIGTERM)

    async def end(self, is_done: bool) -> None:
        """All have been replaced, or what is left is left to whoever comes next."""
        with trio.move_on_after(END_S, shield=True):
            while True:
                try:
                    if is_done:
                        return await forget_plan(self.grid)
                    return await keep_plan(self.grid, self.plan.touched(0), 0)
                except GridError:
                    await trio.sleep(POLL_S)
                except UpgradeUnderWay:
                    return None  # the plan is another's

    # -- small things -----------------------------------------------------------------------------

    async def _keep(self, plan: UpgradePlan) -> None:
        self.plan = plan.touched(_now_ms())
        with trio.move_on_after(self.step_s):
            while True:
                try:
                    return await keep_plan(self.grid, self.plan, _now_ms())
                except GridError:
                    await trio.sleep(POLL_S)
        raise self._stopped("the grid does not answer")

    def _say(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what)

    def _stopped(self, why: str) -> UpgradeStopped:
        logs = ", ".join(str(one.log_file) for one in self._spawned)
        return UpgradeStopped(
            f"the upgrade has stopped, {len(self.plan.replaced)} of {self._count} nodes are replaced: "
            f"{why.rstrip('.')}. Nodes that are left: {', '.join(self.plan.left)}; they go on. Log of what was started "
            f"last: {logs or 'none'}. Stop a new node that is no good (`tenure stop --drain NODE`), mend it, and run "
            "the same `tenure upgrade` again: it goes on with those that are left"
        )


# -- looking, and the end --------------------------------------------------------------------------


async def upgrade_status(client: GridClient) -> UpgradeStatus:
    plan = await read_plan(client.grid)
    seen = await upgrades.formats_seen(client.grid)
    nodes: list[dict[str, Any]] = [
        {
            "id": info.id,
            "name": info.name,
            "version": info.version,
            "reads": list(info.reads),
            "types": dict(info.types),
            "left": plan is not None and info.id in plan.left,
        }
        for info in await live_nodes(client.grid)
    ]
    return {
        "declared": seen.declared,
        "newest": seen.newest,
        "behind": sorted(seen.behind),
        "under_way": plan is not None,
        "replaced": {} if plan is None else plan.replaced,
        "left": [] if plan is None else plan.left,
        "nodes": nodes,
    }


async def finalize(client: GridClient, timeout_s: float | None) -> int:
    """Returns the format that is declared now."""
    seen = await upgrades.finalize(client.grid, deadline_s=30.0 if timeout_s is None else timeout_s)
    return seen.declared


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
