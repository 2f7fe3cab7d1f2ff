"""Waiting until an application is quiet, and taking it away: rounds of questions to all partitions (see
`tenure.scheduler.quiet`, which decides, and says what that promises)."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Literal, cast

import msgspec
import trio

from tenure.clients.plain import one_error
from tenure.clients.views import Quiet, WorkerView
from tenure.scheduler.client import GridClient
from tenure.scheduler.deadline import deadline
from tenure.scheduler.errors import Mistake, NotDone, NotFinished, TenureError, UnknownJob
from tenure.scheduler.nodes_seen import patiently, said_nodes
from tenure.scheduler.quiet import ROUNDS, Sighting, is_quiet, took_all, what_is_waited_for
from tenure.scheduler.sightings import AS_IT_IS, DIRECT, OPEN, TOPICS, Question

__all__ = [
    "Rounds",
    "Tell",
    "Timers",
    "all_jobs_of",
    "jobs_of",
    "keep_closed",
    "refusing",
    "undeploy",
    "until_quiet",
    "wait_quiet",
    "workers",
]

Tell = Callable[[str], None]
"""Is told, again and again, what is waited for."""
Timers = Literal["keep", "fire"]
PAUSE_S, PAUSE_MAX_S = 0.02, 0.5
ANSWER_S = 30.0
"""A partition that does not answer for so long is asked again in the next round."""
SILENT_AFTER_S = 5.0
"""Partitions that take longer are named meanwhile."""
NAMED_MAX = 8
AT_ONCE_MAX = 64


class Rounds:
    """The questions to all partitions, one round after another."""

    def __init__(self, client: GridClient, application: str, *, close: bool) -> None:
        self.client, self.application = client, application
        self.close = DIRECT if close else AS_IT_IS
        self._wait = secrets.token_hex(8)
        self.rounds: list[list[Sighting]] = []
        self._fired: set[int] = set()
        self._silent: list[int] = []
        """Partitions that did not answer in the last round, or have not for long in this one."""
        self.fire = False
        """Let timers that are set come due now; once in each partition."""
        self.over = False
        """The cluster has ended: nothing is let in again."""

    async def ask(self, tell: Tell | None = None) -> bool:
        """One round; returns whether it is decided now. Raises `PartitionLost`."""
        seen: list[Sighting | None] = [None] * self.client.partition_count
        with one_error():
            async with trio.open_nursery() as watching:
                watching.start_soon(self._name_silent, seen, tell)
                async with trio.open_nursery() as asking:
                    for partition in range(self.client.partition_count):
                        asking.start_soon(self._ask_one, partition, seen)
                watching.cancel_scope.cancel()
        self._silent = _missing(seen)
        whole = [sighting for sighting in seen if sighting is not None]
        if len(whole) < len(seen):
            self.rounds = []  # some did not answer: what was seen before them does not count
            return False
        self.rounds = [*self.rounds[-(ROUNDS - 1) :], whole]
        self._stop_more_inputs()
        return is_quiet(self.rounds) and self._are_closed(TOPICS if self.close > AS_IT_IS else AS_IT_IS)

    async def _name_silent(self, seen: list[Sighting | None], tell: Tell | None) -> None:
        while True:
            await trio.sleep(SILENT_AFTER_S)
            self._silent = _missing(seen)
            if tell is not None:
                tell(self.waits_for())

    def waits_for(self) -> str:
        """For people, in a line. Empty: nothing is known yet."""
        if not self._silent:
            return what_is_waited_for(self.rounds)
        named = ", ".join(map(str, self._silent[:NAMED_MAX])) + (", …" if len(self._silent) > NAMED_MAX else "")
        return f"{len(self._silent)} partitions that do not answer: {named}"

    async def _ask_one(self, partition: int, seen: list[Sighting | None]) -> None:
        before = self.rounds[-1][partition] if self.rounds else None
        fire = self.fire and partition not in self._fired
        question = Question(
            application=self.application,
            swept=before.epoch if before is not None and before.swept else -1,
            close=self.close,
            fire=fire,
            wait=self._wait if fire else "",
        )
        arguments = {"op": "quiet", **msgspec.to_builtins(question)}
        try:
            answer = await self.client.command(partition, "", arguments, deadline_s=ANSWER_S)
        except NotDone:
            return
        except TenureError:
            if self.close == OPEN:
                return  # a lost partition keeps none of the others closed; what ended the wait has told of it
            raise
        seen[partition] = msgspec.convert(answer, Sighting)
        if fire:
            self._fired.add(partition)

    def _stop_more_inputs(self) -> None:
        """Closing goes in two steps: what clients had published to topics before the first comes as late as messages
        between partitions do."""
        if self.close == DIRECT and self._are_closed(DIRECT) and all(took_all(*two) for two in pairwise(self.rounds)):
            self.close = TOPICS

    def _are_closed(self, level: int) -> bool:
        rounds = self.rounds
        return len(rounds) >= ROUNDS and all(seen.closed >= level for round in rounds for seen in round)

    @property
    def last(self) -> list[Sighting]:
        return self.rounds[-1] if self.rounds else []

    async def open(self) -> None:
        """Let in again what was refused."""
        self.close, self.fire = OPEN, False
        with trio.move_on_after(5, shield=True):
            await self.ask()


@asynccontextmanager
async def refusing(client: GridClient, application: str, *, asking: GridClient | None = None) -> AsyncIterator[Rounds]:
    """Rounds that close an application while they go on; at the end inputs are let in again, if anybody is there.
    `asking`: who asks meanwhile; it may be cancelled with us."""
    rounds = Rounds(asking or client, application, close=True)
    try:
        yield rounds
    finally:
        rounds.client = client
        if not rounds.over:
            await rounds.open()


async def wait_quiet(
    client: GridClient,
    application: str,
    timers: Timers = "keep",
    close: bool = False,
    tell: Tell | None = None,
    timeout_s: float | None = None,
) -> Quiet:
    rounds = Rounds(client, application, close=close)
    try:
        return await until_quiet(rounds, timers, tell, timeout_s)
    finally:
        if close:
            await rounds.open()


async def until_quiet(rounds: Rounds, timers: Timers, tell: Tell | None, timeout_s: float | None) -> Quiet:
    """Ask until it is decided. Raises `NotFinished`."""
    if timers not in ("keep", "fire"):
        raise Mistake(f"timers are to 'keep' or to 'fire', not {timers!r}")
    pause_s, asked = PAUSE_S, 0
    with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
        while True:
            asked += 1
            if await rounds.ask(tell):
                if timers == "keep" or rounds.fire:
                    return _quiet(rounds, asked)
                rounds.fire, rounds.rounds = True, []  # what was accepted is finished: now time moves to its end
            elif tell is not None:
                tell(rounds.waits_for())
            pause_s = PAUSE_S if not any(seen.busy for seen in rounds.last) else min(PAUSE_MAX_S, 2 * pause_s)
            await trio.sleep(pause_s)
    waits_for = rounds.waits_for() or "the first answers"
    raise NotFinished(
        f"application {rounds.application!r} is not quiet after {timeout_s:g} s: it waits for {waits_for}"
    )


def _missing(seen: list[Sighting | None]) -> list[int]:
    return [partition for partition, sighting in enumerate(seen) if sighting is None]


def _quiet(rounds: Rounds, asked: int) -> Quiet:
    last = rounds.last
    return {
        "application": rounds.application,
        "jobs": sum(seen.jobs for seen in last),
        "timers": sum(seen.timers for seen in last),
        "first_due_ms": min((seen.first_due_ms for seen in last if seen.first_due_ms), default=0),
        "rounds": asked,
    }


# -- taking it away -------------------------------------------------------------------------------


async def undeploy(
    client: GridClient,
    application: str,
    timers: Timers = "keep",
    now: bool = False,
    tell: Tell | None = None,
    timeout_s: float | None = None,
) -> int:
    """Returns how many jobs were removed. Raises `NotFinished` after `timeout_s` in all, with some removed or none."""
    end_s = trio.current_time() + (float("inf") if timeout_s is None else timeout_s)
    async with refusing(client, application) as rounds:
        if not now:
            await until_quiet(rounds, timers, tell, timeout_s)
        removed, failures = list[str](), list[TenureError]()
        with trio.move_on_at(end_s) as waiting, one_error():
            await _remove_all(rounds, removed, failures, tell)
    if failures:
        raise NotFinished(
            f"{len(failures)} jobs could not be removed, the first as: {failures[0]}. Undeploy it again."
        ) from failures[0]
    if waiting.cancelled_caught:
        raise NotFinished(
            f"not all jobs of application {application!r} are removed after {timeout_s:g} s, only {len(removed):,}. "
            "Undeploy it again"
        )
    return len(removed)


async def _remove_all(rounds: Rounds, removed: list[str], failures: list[TenureError], tell: Tell | None) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_closed, rounds)
        while not failures and (ids := await _listed(rounds, tell)):
            if tell is not None:
                tell(f"{len(ids):,} jobs that are to be removed")
            await _remove(rounds.client, ids, removed, failures)
        nursery.cancel_scope.cancel()


async def keep_closed(rounds: Rounds) -> None:
    """Say it again and again, until cancelled."""
    while True:
        await rounds.ask()
        await trio.sleep(PAUSE_MAX_S)


async def _listed(rounds: Rounds, tell: Tell | None) -> list[str]:
    while True:
        try:
            return await jobs_of(rounds.client, rounds.application)
        except NotDone as error:
            if tell is not None:
                tell(f"the list of its jobs: {error}")
            await trio.sleep(PAUSE_MAX_S)


async def jobs_of(client: GridClient, application: str, timeout_s: float | None = None) -> list[str]:
    """The ids of an application's jobs, but for those that end already; of very many, some. Raises `NotDone`."""
    question = {"op": "jobs_of", "application": application}
    answers = await client.directory.every_partition(question, deadline_s=timeout_s)
    return [id for answer in answers for id in answer]


async def all_jobs_of(client: GridClient, application: str, timeout_s: float | None = None) -> list[str]:
    """The ids of all of them, in order. Raises `NotDone`."""
    question, found = {"op": "jobs_of", "application": application}, list[str]()
    limit_s = client.settings.ask_deadline_s if timeout_s is None else timeout_s
    with deadline(limit_s, f"the list of the jobs of application {application!r}"):
        answers = await client.directory.every_partition({**question, "after": ""}, deadline_s=limit_s)
        for partition, first in enumerate(answers):
            page = first
            while isinstance(page, dict) and page["more"]:
                found += page["ids"]
                arguments = {**question, "after": page["ids"][-1]}
                page = await client.command(partition, "", arguments, deadline_s=limit_s)
            found += page["ids"] if isinstance(page, dict) else page  # of an older node, which knows of no pages
    return sorted(set(found))


async def _remove(client: GridClient, ids: list[str], removed: list[str], failures: list[TenureError]) -> None:
    limiter = trio.CapacityLimiter(AT_ONCE_MAX)

    async def one(id: str) -> None:
        async with limiter:
            try:
                await client.defining.want(id, "removed")
                removed.append(id)
            except UnknownJob:
                pass  # it has finished itself meanwhile
            except TenureError as error:
                failures.append(error)

    async with trio.open_nursery() as nursery:
        for id in ids:
            nursery.start_soon(one, id)


async def workers(client: GridClient, application: str, node: str, timeout_s: float | None) -> list[WorkerView]:
    said = await patiently(said_nodes, client.grid)
    places = {info.id: info.place for info in said if node in ("", info.id, info.name)}
    arguments: dict[str, Any] = {"op": "workers", "application": application, "after": ""}
    found: list[WorkerView] = []
    for worker in await client.directory.all_pages(arguments, "workers", "id", timeout_s):
        on = sorted(id for id, place in places.items() if place and place == worker["place"])
        if on or not node:
            found.append(cast(WorkerView, {**worker, "nodes": on}))
    return sorted(found, key=lambda worker: (worker["job"], worker["name"]))
