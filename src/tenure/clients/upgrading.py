"""Replacing nodes by newer ones, some at a time, as long as all is well.

start the new ──► all new ones serve, answer, fail no more jobs than at first ──► drain the old ──► the next
                    └── not so: stop here, and say what to do. The old ones that are left go on

What a drain has moved to new code is watched with the next new nodes, before the next drain; after the last one once
more. One that was killed goes on with the step that it was at: nodes that it has started are not started again.
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

import msgspec
import trio

from tenure.clients.quiescing import Tell
from tenure.clients.scaling import Coming, address_of, left, settled_nodes, tell
from tenure.clients.upgrade_nodes import plan_upgrade, planned
from tenure.clients.views import UpgradeStatus
from tenure.jobs.spawning import Spawned, spawned_by, split
from tenure.nodes.neighbours import Neighbours
from tenure.scheduler import upgrades
from tenure.scheduler.assignment import NodeInfo, all_have_some
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import (
    Mistake,
    NotDone,
    TenureError,
    UpgradeStopped,
    UpgradeUnderWay,
)
from tenure.scheduler.grid.port import GridError
from tenure.scheduler.nodes_seen import live_nodes, patiently, said_nodes
from tenure.scheduler.orders import Order
from tenure.scheduler.upgrade_plan import OwnPlan, UpgradePlan, freed, read_plan

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
    """Returns which node came for which; for one that left after an upgrade was stopped, none. Where another upgrade
    was under way a moment ago, waits until it is known whether it still is."""
    if at_once < 1:
        raise Mistake(f"at least one node is replaced at once, not {at_once}")
    command = split(spawn)
    await patiently(lambda grid: freed(grid, lambda plan: _tell_of(plan, on_step)), client.grid)
    begin = await planned(client, nodes, command)
    work = _Upgrade(client, command, begin.left, watch_s, None if log_folder is None else Path(log_folder), on_step)
    work.plan = msgspec.structs.replace(work.plan, replaced=begin.replaced, step=begin.step, token=begin.token)
    work.step_s = STEP_S if timeout_s is None else timeout_s
    try:
        await work.run(at_once)
    except (Mistake, UpgradeStopped, UpgradeUnderWay):
        raise
    except (TenureError, GridError) as error:
        raise work.stopped(str(error)) from error
    finally:
        await work.end()
    return work.plan.replaced


def _tell_of(plan: UpgradePlan, on_step: Tell | None) -> None:
    if on_step is not None:
        on_step(f"{plan.by} was at an upgrade a moment ago: waiting to see whether it still is")


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
        self._own = OwnPlan(client.grid)
        self._spawned: list[Spawned] = []
        self._known: set[str] = set(old)
        """Every node that there ever was, but for the new ones: one that was silent for long may come back."""
        self._first: set[str] = set()
        """The nodes that there were at the beginning, but for those that were started for the step that it goes on
        with."""
        self._new: list[str] = []
        """Those that came for old ones, and that have served their share."""
        self._ailing = 0
        """How many jobs had failed, or could not run, before anything was changed."""

    async def run(self, at_once: int) -> None:
        """Replace all that are left, so many at a time."""
        await self._keep(self.plan)
        if not self.plan.left:
            return
        self._first = await self._not_started_for(self.plan.token)
        self._ailing = await self._count_ailing()
        while self.plan.left:
            if old := self.plan.step or await self._next(at_once):
                await self._replace(old)
        await self._watch()
        others = self._first.union(self._new, self.plan.replaced)
        if came := [info.id for info in await patiently(said_nodes, self.grid) if info.id not in others]:
            self._say(f"not replaced, as they came meanwhile: {', '.join(came)}")

    # -- one step ---------------------------------------------------------------------------------

    async def _next(self, at_once: int) -> list[str]:
        """Those to be replaced now. One that has gone by itself is not: what is started in its place is said by those
        who see to that. One that is silent may come back, and is left for the end."""
        said = {info.id for info in await patiently(said_nodes, self.grid)}
        if there := [id for id in self.plan.left if id in said]:
            return there[:at_once]
        self._say(f"gone before they were replaced: {', '.join(self.plan.left)}")
        await self._keep(self.plan.with_replaced(self.plan.left, [], _now_ms()))
        return []

    async def _replace(self, old: list[str]) -> None:
        """Start as many as these, or as are missing where that has begun before, and drain these when all is well with
        those."""
        coming = Coming(len(old), self.plan.token)
        alive = await patiently(live_nodes, self.grid) if self.plan.token else []
        there = [info.id for info in alive if info.spawned_by == coming.token]
        await self._keep(self.plan.with_step(old, coming.token))
        self._known |= await self._not_started_for(coming.token)
        if there:
            self._say(f"going on with what was started in place of {', '.join(old)}: {', '.join(there)}")
        if missing := max(0, len(old) - len(there)):
            self._say(f"starting {missing} in place of {', '.join(old)}")
        address = address_of(self.grid)
        self._spawned = [await spawned_by(self.command, address, self.log_folder, coming.token) for _ in range(missing)]
        new = (await self._come(coming))[: len(old)]  # there are more if one that was killed has started others late
        self._new += new
        await self._watch()
        for id in old:
            await self._drain(id)
        await self._keep(self.plan.with_replaced(old, new, _now_ms()))
        done, count = len(self.plan.replaced), len(self.plan.replaced) + len(self.plan.left)
        self._say(f"{', '.join(new)} in place of {', '.join(old)}: {done} of {count} done")

    async def _not_started_for(self, token: str) -> set[str]:
        return {info.id for info in await patiently(said_nodes, self.grid) if not token or info.spawned_by != token}

    async def _come(self, coming: Coming) -> list[str]:
        count = coming.count
        with trio.move_on_after(self.step_s):
            while True:
                new = [node for node in await settled_nodes(self.grid) if node.id not in self._known]
                if ours := coming.seen(new):
                    return ours
                for one in self._spawned:
                    if one.ended():
                        raise self.stopped(f"the new node has ended with exit code {one.ended()}: {one.last_words()}")
                self._say(f"waiting until {count} new nodes serve their share")
                await self._keep(self.plan)
                await trio.sleep(POLL_S)
        raise self.stopped(f"not all of {count} new nodes serve their share after {self.step_s:g} s")

    async def _watch(self) -> None:
        """For a while: do the new nodes answer, can they run what they have, and do no more jobs fail than at first?"""
        end_s = trio.current_time() + self.watch_s
        count_s = trio.current_time() + COUNT_EVERY_S
        silent = 0
        while True:
            alive = await patiently(live_nodes, self.grid)
            gone = sorted(set(self._new) - {info.id for info in alive})
            silent = silent + 1 if gone else 0
            if silent == SILENT_LOOKS:
                raise self.stopped(f"the new node {', '.join(gone)} has fallen silent")
            for info in alive:
                if info.id in self._new:
                    await self._check(info, alive)
            is_over = trio.current_time() >= end_s and not silent
            if not is_over and trio.current_time() < count_s:
                await self._pause(f"watching {', '.join(self._new)}")
                continue
            count_s = trio.current_time() + COUNT_EVERY_S
            if (now := await self._count_ailing()) > self._ailing:
                raise self.stopped(
                    f"{now - self._ailing} more jobs have failed, are tried again and again, or can't run than before: "
                    "see `tenure jobs state=failed or state=retrying or state=stuck`"
                )
            if is_over:
                return

    async def _pause(self, what: str) -> None:
        self._say(what)
        await self._keep(self.plan)
        await trio.sleep(min(0.5, self.watch_s))

    async def _check(self, info: NodeInfo, alive: list[NodeInfo]) -> None:
        if info.lost:
            raise self.stopped(f"the new node {info.id} reports {len(info.lost)} lost partitions")
        if info.parked:
            partition, why = min(info.parked.items())
            count = len(info.parked)
            raise self.stopped(f"on the new node {info.id} {count} partitions are parked ({partition}: {why})")
        if info.unfit or (not info.owned and all_have_some(alive, self.grid.partition_count)):
            can_not = f"can't read or run all of {len(info.unfit)} partitions (its log says why)"
            raise self.stopped(
                f"the new node {info.id} {can_not if info.unfit else 'gets no partition'}; job types that it does not "
                f"know, or knows in older versions: {_unknown_to(info, alive) or 'none'}"
            )
        if info.owned:
            try:
                await self.client.command(info.owned[0], "", {"op": "status"}, deadline_s=self.step_s)
            except NotDone as error:
                raise self.stopped(
                    f"partition {info.owned[0]} of the new node {info.id} does not answer: {error}"
                ) from error

    async def _count_ailing(self) -> int:
        """Jobs that have failed, fail again and again, or can't run where they are."""
        rows = await self.client.directory.partitions(deadline_s=self.step_s)
        if all("failed" in row for row in rows):
            return sum(row["failed"] + row["stuck"] + row.get("retrying", 0) for row in rows)
        jobs = await self.client.directory.jobs(deadline_s=self.step_s)  # an older version counts nothing
        return sum(job["status"] == "failed" or bool(job["stuck"]) for job in jobs)

    async def _drain(self, id: str) -> None:
        info = next((info for info in await patiently(said_nodes, self.grid) if info.id == id), None)
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
        raise self.stopped(
            f"{id} has not handed over within {self.step_s:g} s. It was told to, and leaves when it can: look for long "
            "turns"
        )

    async def _tell_to_leave(self, info: NodeInfo) -> None:
        if info.rules >= 2:
            await tell(self.grid, info.id, Order(leave=True))
            return
        here = Neighbours()
        if not info.host or info.host != here.host or here.is_gone(info):
            raise self.stopped(
                f"{info.id} is of an older version, which takes no orders from elsewhere: end it with SIGTERM (process "
                f"{info.pid} on its machine)"
            )
        os.kill(info.pid, signal.SIGTERM)

    async def end(self) -> None:
        """All have been replaced, or what is left is left to whoever comes next."""
        with trio.move_on_after(END_S, shield=True):
            while True:
                try:
                    if self.plan.left:
                        return await self._own.keep(self.plan.touched(0))
                    return await self._own.forget(self.plan)
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
                    return await self._own.keep(self.plan)
                except GridError:
                    await trio.sleep(POLL_S)
        raise self.stopped("the grid does not answer")

    def _say(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what)

    def stopped(self, why: str) -> UpgradeStopped:
        left, done = self.plan.left, len(self.plan.replaced)
        log = ", ".join(str(one.log_file) for one in self._spawned) or "none"
        what = (
            f"{done} of {done + len(left)} nodes are replaced: {why.rstrip('.')}. Log of what was started last: {log}"
        )
        if not left:
            return UpgradeStopped(
                f"all is not well after the upgrade, {what}. No old node is left: mend what is wrong, or go back by an "
                "upgrade to what was there before"
            )
        return UpgradeStopped(
            f"the upgrade has stopped, {what}. Nodes that are left: {', '.join(left)}; they go on. Stop a new node "
            "that is no good (`tenure stop --drain NODE`), mend it, and run the same `tenure upgrade` again: it goes "
            "on with those that are left"
        )


def _unknown_to(new: NodeInfo, alive: list[NodeInfo]) -> str:
    missing = {
        f"{type} {version}"
        for info in alive
        for type, version in info.types.items()
        if new.types.get(type, 0) < version
    }
    return ", ".join(sorted(missing))


# -- looking, and the end --------------------------------------------------------------------------


async def upgrade_status(client: GridClient) -> UpgradeStatus:
    plan = await patiently(read_plan, client.grid)
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
        for info in await patiently(live_nodes, client.grid)
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
