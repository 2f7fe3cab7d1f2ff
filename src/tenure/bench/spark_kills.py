"""One run of a pipeline in which something is killed with -9 at a random moment, and what became of its output.

The pipeline has an external command, shuffles and an aggregate; as a batch, and as a stream. In the end its output is
compared with what the same records give without Spark. All the time it is looked who works: drivers of one job at
once are never more than one, and when it is over, no process of it is left.
"""

import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psutil
import trio

from tenure.jobs.pipelines import Aggregate, Command, KeyBy, Pipeline, Sink, Text
from tenure.jobs.processes import variables
from tenure.jobs.reporting import RUN_TAG
from tenure.jobs.spark.launching import DRIVER

if TYPE_CHECKING:
    from tenure.clients.client import Client
    from tenure.testing import Cluster

__all__ = ["OTHERS", "TARGETS", "Verdict", "expected", "kills_of", "make_pipeline", "run_with_kills", "written"]

RECORDS, KEYS = 3000, 17
DEADLINE_S = 600.0
LOOK_EVERY_S = 0.05
LIVES_S = 0.5
"""The shortest-lived of a run's processes are there for longer than this."""
PATIENCE_S = 20.0
"""So long is one waited for: until a driver that was just started has got as far."""
OPERATOR = """#!/usr/bin/env perl
# Forwards every record; slowly enough to be killed at work.
my $n = 0;
while (my $key = <STDIN>) {
    my $value = <STDIN>;
    select(undef, undef, undef, 0.05) if ++$n % 50 == 0;
    print "forward\\n", $key, $value;
}
"""


@dataclass
class Verdict:
    """What became of one run."""

    kills: list[str] = field(default_factory=list)
    """What was killed; less than what was to be, if the run was over before."""
    status: str = ""
    error: str = ""
    right: bool = False
    """It has succeeded, and its output is what it is to be."""
    drivers_at_once: int = 0
    together: list[str] = field(default_factory=list)
    """Those that were seen at once, and their parents."""
    attempts: int = 0
    orphans: list[str] = field(default_factory=list)


# -- the pipeline --------------------------------------------------------------------------------------


def make_pipeline(folder: Path, *, streaming: bool) -> Pipeline:
    """A pipeline over records that it writes first."""
    folder.mkdir(parents=True)
    with (folder / "input.txt").open("w") as file:
        file.writelines(f"user{number % KEYS} {number}\n" for number in range(RECORDS))
    (folder / "operator.pl").write_text(OPERATOR)
    (folder / "operator.pl").chmod(0o755)
    stream: dict[str, Any] = {"stream": True, "idle_s": 1.0, "max_batch_records": RECORDS // 6} if streaming else {}
    user, number = {"regex": r"^(\S+)"}, {"regex": r"(\d+)$"}
    return Pipeline(
        name="kills",
        source=Text("input.txt", **stream),
        stages=[Command("./operator.pl", tasks=2), KeyBy(user), Aggregate("sum", of=number, tasks=2)],
        sink=Sink(text="out"),
        master="local[2]",
        spark={"spark.driver.memory": "1g"},
        folder=str(folder),
    )


def expected() -> dict[str, str]:
    """What it gives."""
    sums = dict.fromkeys((f"user{key}" for key in range(KEYS)), 0)
    for number in range(RECORDS):
        sums[f"user{number % KEYS}"] += number
    return {user: str(total) for user, total in sums.items()}


def written(folder: Path) -> list[tuple[str, ...]]:
    """What it has written."""
    lines = [line for part in (folder / "out").glob("part-*") for line in part.read_text().splitlines()]
    return sorted(tuple(line.split(": ", 1)) for line in lines)


# -- who is there --------------------------------------------------------------------------------------


def processes_of(run: str) -> list[tuple[psutil.Process, str]]:
    """All processes of all attempts, and what they are."""
    mark = f"{RUN_TAG}={run}.".encode()
    found = []
    for process in psutil.process_iter():
        try:
            if any(variable.startswith(mark) for variable in variables(process.pid)):
                found.append((process, _kind(process.cmdline())))
        except psutil.Error:
            continue  # it has ended
    return found


MARKS = {"driver": DRIVER, "jvm": "SparkSubmit", "worker": "pyspark.daemon", "command": "operator.pl"}


def _kind(command: list[str]) -> str:
    text = " ".join(command)
    return next((kind for kind, mark in MARKS.items() if mark in text), "wrapper")


# -- killing -------------------------------------------------------------------------------------------

TARGETS = ("driver", "jvm", "worker", "command")
"""The kinds of process that a run has."""
OTHERS = ("node", "member")
"""The cluster's: the node that owns the job, and the member that this node is paired with."""


def kills_of(cluster: "Cluster", client: "Client", id: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """How each of `OTHERS` is killed; another one takes its place. For clusters of processes."""

    async def kill_node() -> None:
        owner = (await client.describe(id))["node"]
        await cluster.kill(next(n for n in await cluster.nodes() if owner.startswith(f"node-{n}-")))
        await cluster.add_node()

    async def kill_member() -> None:
        owner = (await client.describe(id))["node"]
        pair = next(node["member"] for node in (await client.scale())["nodes"] if node["id"] == owner)
        addresses = (await cluster.address()).rpartition("@")[2].split(",")
        await cluster.kill_member(dict(zip(addresses, await cluster.members(), strict=True))[pair])
        await cluster.add_member()

    return {"node": kill_node, "member": kill_member}


async def run_with_kills(
    client: "Client",
    id: str,
    folder: Path,
    random: Random,
    *,
    streaming: bool,
    targets: Sequence[str],
    within_s: float,
    others: dict[str, Callable[[], Awaitable[object]]],
    patience_s: float = PATIENCE_S,
) -> Verdict:
    """Run it, and kill these one after the other, each within so many seconds after there is a driver."""
    from tenure.jobs.spark.types import PipelineJob, parameters

    verdict = Verdict()
    pipeline = make_pipeline(folder, streaming=streaming)
    await client.schedule(PipelineJob, id=id, **parameters(pipeline), attempts_max=5 + len(targets), first_delay_s=0.1)
    run = await _run_of(client, id)
    with trio.move_on_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_drivers, run, verdict)
            nursery.start_soon(_kill, run, random, targets, within_s, others, patience_s, verdict)
            await _ended(client, id, verdict)
            nursery.cancel_scope.cancel()
    verdict.orphans = await _orphans(run)
    found = written(folder)
    verdict.right = verdict.status == "succeeded" and found == sorted(expected().items())
    if verdict.right:
        shutil.rmtree(folder, ignore_errors=True)
    return verdict


async def _run_of(client: "Client", id: str) -> str:
    """The name that the tags of all attempts begin with."""
    while True:
        description = await client.describe(id)
        if description["activities"]:
            return description["activities"][0]["tag"].rpartition(".")[0]
        await trio.sleep(LOOK_EVERY_S)


async def _ended(client: "Client", id: str, verdict: Verdict) -> None:
    from tenure.scheduler.errors import TryAgain

    while True:
        try:
            activity = (await client.describe(id))["activities"][0]
        except TryAgain:
            continue  # its node has just been killed
        verdict.status, verdict.error, verdict.attempts = activity["status"], activity["error"], activity["attempt"]
        if activity["ended_ms"]:
            return
        await trio.sleep(0.2)


async def _watch_drivers(run: str, verdict: Verdict) -> None:
    while True:
        drivers = await trio.to_thread.run_sync(_drivers_of, run)
        verdict.drivers_at_once = max(verdict.drivers_at_once, len(drivers))
        if len(drivers) > 1:
            verdict.together = drivers
        await trio.sleep(LOOK_EVERY_S)


def _drivers_of(run: str) -> list[str]:
    """Drivers that wrappers have started. What a driver has just forked, to be another program in a moment, looks as
    if it were one too."""
    parents = {}
    for process, kind in processes_of(run):
        if kind == "driver":
            try:
                parents[process.pid] = process.ppid()
            except psutil.Error:
                continue  # it has ended
    return [f"{pid} of {parent}" for pid, parent in parents.items() if parent not in parents]


async def _kill(
    run: str,
    random: Random,
    targets: Sequence[str],
    within_s: float,
    others: dict[str, Callable[[], Awaitable[object]]],
    patience_s: float,
    verdict: Verdict,
) -> None:
    for target in targets:
        await _driver_there(run)
        await trio.sleep(random.uniform(0, within_s))
        if target in others:
            await others[target]()
        else:
            target = await _kill_one(run, target, random, patience_s)
        verdict.kills.append(target)


async def _kill_one(run: str, target: str, random: Random, patience_s: float) -> str:
    """A process of this kind. Where none is there now, one that comes, some time after it has come; or, if none comes
    for long, any that is there. Returns its kind."""
    with trio.move_on_after(patience_s):
        while True:
            if _kill_any(await _there(run, [target]), random):
                return target
            while not await _there(run, [target]):  # noqa: ASYNC110  # no event tells
                await trio.sleep(LOOK_EVERY_S)
            await trio.sleep(random.uniform(0, LIVES_S))
    while not (killed := _kill_any(await _there(run, TARGETS), random)):  # noqa: ASYNC110  # no event tells
        await trio.sleep(LOOK_EVERY_S)
    return killed


def _kill_any(victims: list[tuple[psutil.Process, str]], random: Random) -> str:
    """What kind of process was killed; empty if there was none, or it has just ended by itself."""
    if not victims:
        return ""
    process, kind = random.choice(victims)
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return ""
    return kind


async def _there(run: str, kinds: Sequence[str]) -> list[tuple[psutil.Process, str]]:
    return [found for found in await trio.to_thread.run_sync(processes_of, run) if found[1] in kinds]


async def _driver_there(run: str) -> None:
    while True:
        if await _there(run, ["driver"]):
            return
        await trio.sleep(LOOK_EVERY_S)


async def _orphans(run: str) -> list[str]:
    left = await trio.to_thread.run_sync(processes_of, run)
    for _ in range(100):
        if not left:
            break
        await trio.sleep(0.1)
        left = await trio.to_thread.run_sync(processes_of, run)
    return [f"{kind} {process.pid}" for process, kind in left]
