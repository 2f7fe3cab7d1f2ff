"""Running a pipeline as a job, and watching it to its end: on a cluster, or on one that is there only for this."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.cli.connection import client_settings, connected, hush, known_types
from tenure.cli.ends import Exit, Failed
from tenure.cli.options import Connection
from tenure.cli.show import print_json, say
from tenure.cli.spark_console import Console
from tenure.cli.spark_view import View, view_for
from tenure.jobs.pipelines import Pipeline

if TYPE_CHECKING:
    from tenure.clients.views import ActivityView
    from tenure.scheduler.client import GridClient

__all__ = ["run_and_watch"]

LOOK_EVERY_S = 0.25


def run_and_watch(pipeline: Pipeline, id: str, connection: Connection) -> int:
    """The exit code of the run. Raises `Failed` with the cause and the place of the whole log."""
    import trio

    with tempfile.TemporaryDirectory(prefix="tenure-console-") as folder:
        console = Path(folder) / "console"
        console.touch()
        ended = trio.run(_run, pipeline, id, connection, console)
    if ended["status"] != "succeeded":
        what = ended["error"] or f"{pipeline.name} was {ended['status']}"
        raise Failed(f"{what.rstrip('.')}.{_log_of(ended)}")
    if connection.json:
        print_json({"pipeline": pipeline.name, "status": "succeeded", "result": ended["result"]})
    else:
        say(_sentence(pipeline, ended["result"] or {}))
    return Exit.DONE


@asynccontextmanager
async def _open_client(connection: Connection) -> AsyncIterator["GridClient"]:
    """A client of the cluster that is named; without one, of a cluster that ends with it, where this process is the
    node."""
    from tenure.connect import opening_embedded
    from tenure.jobs.spark import types  # noqa: F401  # registers what the node is to run
    from tenure.nodes.logs import set_up_logs
    from tenure.scheduler.jobtype import registry

    if connection.cluster:
        async with connected(connection, registry) as client:
            yield client
        return
    # Standard output is the pipeline's. That the cluster ends with the command is what was asked for.
    set_up_logs(json=connection.json, level="debug" if connection.debug else "warning")
    hush(connection)
    settings, types_known = client_settings(connection), known_types(connection, registry)
    async with opening_embedded(types_known, settings)() as client:
        yield client


async def _run(pipeline: Pipeline, id: str, connection: Connection, console: Path) -> "ActivityView":
    from tenure.jobs.spark.types import PipelineJob, parameters

    with view_for(pipeline, as_json=connection.json) as view:
        async with _open_client(connection) as client:
            was_there = await _is_there(client, id)
            await client.defining.schedule(PipelineJob, id, {**parameters(pipeline), "on_demand": True})
            started = await client.ask(id, {"start": {"console": str(console)}})
            if (name := started.get("started")) is None:
                raise Failed(f"{id} is under way already ({', '.join(started.values())}): see `tenure spark list`.")
            ended = await _watch(client, id, name, view, Console(console, as_json=connection.json))
            if not was_there and not pipeline.needs_job:  # who writes to a topic has still to do
                await _remove(client, id)
            return ended


async def _remove(client: "GridClient", id: str) -> None:
    from tenure.scheduler.errors import TryAgain, UnknownJob

    try:
        await client.defining.want(id, "removed")
    except TryAgain as error:
        say(f"The job {id} is still there ({error}): `tenure unschedule {id}` removes it.")
    except UnknownJob:
        pass  # somebody else did


async def _is_there(client: "GridClient", id: str) -> bool:
    from tenure.scheduler.errors import UnknownJob

    try:
        await client.directory.describe(id)
    except UnknownJob:
        return False
    return True


async def _watch(client: "GridClient", id: str, name: str, view: View, console: Console) -> "ActivityView":
    """Until it has ended. An interrupt asks it to end; a second one goes without waiting."""
    import trio

    over: list[ActivityView] = []

    async def look() -> None:
        while not over:
            activities = (await client.directory.describe(id))["activities"]
            found = next(activity for activity in activities if activity["name"] == name)
            view.hear(found)
            console.copy()
            if found["status"] in ("succeeded", "failed", "cancelled"):
                over.append(found)
                interrupts.cancel()
            else:
                await trio.sleep(LOOK_EVERY_S)

    async with trio.open_nursery() as nursery:
        interrupts = trio.CancelScope()
        nursery.start_soon(look)
        with interrupts:
            await _cancel_when_interrupted(client, id)
    console.end()
    return over[0]


async def _cancel_when_interrupted(client: "GridClient", id: str) -> None:
    import signal

    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        asked = False
        async for _ in signals:
            if asked:
                raise KeyboardInterrupt
            asked = True
            say("Cancelling; once more to leave at once.")
            await client.publish(id, {"cancel": True})


def _log_of(activity: "ActivityView") -> str:
    from tenure.jobs.folders import place_of, state_folder

    state = state_folder()
    folder = state / "runs" / activity["tag"]
    if activity["place"] != place_of(state) or not folder.is_dir():
        return f" Its log is on {activity['place']}." if activity["place"] else ""
    return f" The whole log: {folder / 'stderr.log'}"


def _sentence(pipeline: Pipeline, result: dict[str, Any]) -> str:
    where = " and ".join(str(pipeline.path(folder)) for folder in pipeline.sink.folders)
    records = result.get("records", 0)
    many, place = "s" * (records != 1), f" in {where}" if where else ""
    return f"{pipeline.name}: {records:,} record{many}{place}, {result.get('seconds', 0):.1f} s."
