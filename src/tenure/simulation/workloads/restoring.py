"""Restoring: a snapshot is restored over the living cluster, while nodes are frozen and writes of clients come late.

What was acknowledged before the snapshot was begun is there afterwards, and so is what was published when the restore
was over; of the rest each message counts once or not at all. Nobody of before commits, and no two turns share a name.
A job that has ended since the snapshot is there again.
"""

from itertools import pairwise
from typing import Any, ClassVar

import trio

from tenure.scheduler.client import GridClient
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.snapshots.coordinator import SnapshotOptions, take_snapshot
from tenure.scheduler.snapshots.restoring import RestoreOptions, restore_snapshot
from tenure.scheduler.snapshots.stores import MEMORIES, Memory
from tenure.simulation.histories import Findings
from tenure.simulation.stage import current_world
from tenure.simulation.strikes import frozen_as_jobs_end, frozen_over_a_restore, late_writes
from tenure.simulation.workloads.base import Drive, Workload, states
from tenure.simulation.workloads.timing import Alarm, judge_fires

__all__ = ["Restoring", "TurnNames", "judge_restored"]

MORTALS = 6


class TurnNames:
    """What each turn was for, by its name: outside systems take two turns of one name for one."""

    def __init__(self) -> None:
        self.meant: dict[str, str] = {}
        self.wrong: list[str] = []

    def note(self, name: str, what: str) -> None:
        """A turn of this name is run."""
        if (before := self.meant.setdefault(name, what)) != what:
            self.wrong.append(f"turns for {before} and for {what} are both called {name}")


class Phoenix(Job):
    """Counts; outside, the names of its turns are kept."""

    seen: dict[str, list[int]] = {}

    def on_message(self, ctx: Any, message: tuple[str, int]) -> None:
        names: TurnNames = current_world().outside(TurnNames)
        names.note(ctx.turn_id, f"message {message[1]} of {message[0]}")
        self.seen.setdefault(message[0], []).append(message[1])


class Mortal(Job):
    """Ends when it is told to."""

    told: int = 0

    def on_message(self, ctx: Any, message: str) -> None:
        self.told += 1
        ctx.finish()


class Watch(Alarm):
    """Wakes again and again, also after it was restored."""


class Mail:
    """What one sender sent to one job, and what must have come of it."""

    def __init__(self) -> None:
        self.count = 0
        self.before: set[int] = set()
        """Acknowledged before the snapshot was begun."""
        self.since: set[int] = set()
        """Published, and acknowledged, after the restore."""
        self.between: set[int] = set()


def judge_restored(where: str, seen: list[int], mail: Mail) -> Findings:
    """In order, each once, none that was not sent; what must be there is there, and is never passed over."""
    found = Findings()
    if any(b <= a for a, b in pairwise(seen)) or set(seen) - set(range(mail.count)):
        found.wrong.append(f"{where}: of {mail.count} messages it has seen {seen}")
    missing = sorted((mail.before | mail.since) - set(seen))
    if passed := [n for n in missing if seen and n < seen[-1]]:
        found.wrong.append(f"{where}: passed over {passed}, of the snapshot or since the restore: {seen}")
    elif missing:
        found.waiting.append(f"{where}: not seen {missing}")
    return found


class Restoring(Workload):
    """Publishers, timers, and an operator who restores."""

    types: ClassVar = (JobType("phoenix", Phoenix), JobType("watch", Watch), JobType("mortal", Mortal))
    settings: ClassVar = {"image_journal_slots_max": 4, "image_journal_bytes_min": 500, "lane_lifetime_s": 6.0}
    strikes: ClassVar = (frozen_over_a_restore, frozen_as_jobs_end, late_writes)
    alone: ClassVar = True

    async def prepare(self, client: GridClient) -> None:
        self.mail: dict[tuple[str, str], Mail] = {}
        self.jobs = [f"phoenix{n}" for n in range(3)]
        self.watches = [f"watch{n}" for n in range(2)]
        self.url = f"memory:restoring {self.world.seed}"
        self.store = MEMORIES[self.url] = Memory()
        self.snapshot, self.restored = "", False
        for id in self.jobs:
            await client.defining.schedule("phoenix", id, {})
        self.mortals = [f"mortal{n}" for n in range(MORTALS)]
        self.doubtful: set[str] = set()
        """Mortals that may rightly have ended in the restored cluster."""
        for id in self.mortals:
            await client.defining.schedule("mortal", id, {})
        for id in self.watches:
            await client.defining.schedule("watch", id, {"period_s": self.random.choice((0.7, 1.3))})

    def drives(self) -> list[Drive]:
        return [self._publish, self._publish, self._operate, self._let_die]

    async def _let_die(self, client: GridClient) -> None:
        """Between the snapshot and the restore. What was not acknowledged before the restore was begun may still count
        after it."""
        for id in self.mortals:
            while not self.snapshot:
                if not self.world.working:
                    return
                await trio.sleep(0.1)
            if self.world.restoring.is_set():
                return
            self.doubtful.add(id)
            outcome = await self.world.attempt(1, lambda id=id: client.publish(id, "go", deadline_s=1.0))  # type: ignore[misc]
            if outcome.done and not self.world.restoring.is_set():
                self.doubtful.remove(id)

    async def _publish(self, client: GridClient) -> None:
        sender = self.world.name("pilgrim")
        while self.world.working or (not self.restored and self.snapshot):
            batch = []
            for _ in range(self.random.choice((1, 2, 4))):
                job = self.random.choice(self.jobs)
                mail = self.mail.setdefault((job, sender), Mail())
                batch.append((job, (sender, mail.count)))
                mail.count += 1
            was_restored = self.restored
            outcome = await self.world.attempt(len(batch), lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            for job, (_, n) in batch if outcome.done else ():
                mail = self.mail[job, sender]
                (mail.since if was_restored else mail.between).add(n)
            await self.pause(0.1, 0.5)

    async def _operate(self, client: GridClient) -> None:
        await self.pause(0.5, 2.0)
        while not self.snapshot:
            known = [(mail, set(mail.between)) for mail in self.mail.values()]
            taken = await self.world.attempt(
                1,
                lambda: take_snapshot(
                    client.grid, self.url, self.store, client.now_ms, SnapshotOptions(deadline_s=15.0)
                ),
            )
            if taken.result is not None:
                for mail, numbers in known:
                    mail.before |= numbers
                self.snapshot = taken.result.manifest.name
                await self.pause(0.0, 1.0)
            await self.pause(0.2, 1.0)
        while not self.restored:
            self.world.restoring.set()
            options = RestoreOptions(name=self.snapshot, replace=True)
            restored = await self.world.attempt(
                1,
                lambda options=options: restore_snapshot(client.grid, self.store, client.now_ms, options),  # type: ignore[misc]
            )
            self.restored = restored.done
            await self.pause(0.1, 0.5)
        self.world.trace.tell("operator", "has restored")
        await trio.sleep(4.0)

    async def examine(self, client: GridClient) -> Findings:
        found = Findings(wrong=list(self.world.outside(TurnNames).wrong[:3]))
        until_ms = self.world.slowest_clock_ms()
        mortals = [id for id in self.mortals if id not in self.doubtful]
        for id, job in (await states(client, self.jobs + self.watches + mortals, found)).items():
            if id in mortals:
                if job.told:
                    found.wrong.append(f"{id} was told to end before the restore, and has heard of it after that")
                continue
            if id in self.watches:
                found.add(judge_fires(id, job.fires, job.set_for, job.early, until_ms))
                continue
            for sender in job.seen.keys() | {sender for to, sender in self.mail if to == id}:
                mail = self.mail.get((id, sender), Mail())
                found.add(judge_restored(f"{id} from {sender}", job.seen.get(sender, []), mail))
        return found
