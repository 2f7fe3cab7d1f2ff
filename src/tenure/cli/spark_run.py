"""Running a pipeline as a job, and watching it to its end: on a cluster, or on one that is there only for this."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.cli.ends import Exit, Failed
from tenure.cli.options import Connection
from tenure.cli.show import print_json, say
from tenure.cli.spark_console import Console
from tenure.cli.spark_view import View, view_for
from tenure.jobs.pipelines import Pipeline

if TYPE_CHECKING:
    from tenure.clients.client import Client
    from tenure.clients.views import ActivityView

__all__ = ["open_spark_client", "run_and_watch"]

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


def open_spark_client(connection: Connection) -> "Client":
    """A client of the cluster that is meant; without one, of a cluster that ends with it, where this process is the
    node."""
    import logging

    from tenure.clients.client import Client
    from tenure.jobs.spark import types  # noqa: F401  # registers what the node is to run

    if not connection.debug:
        logging.getLogger("hazelcast").setLevel(logging.CRITICAL)
    return Client(connection.cluster)


async def _run(pipeline: Pipeline, id: str, connection: Connection, console: Path) -> "ActivityView":
    from tenure.jobs.spark.types import PipelineJob, parameters

    with view_for(pipeline, as_json=connection.json) as view:
        async with open_spark_client(connection) as client:
            await client.schedule(PipelineJob, id=id, **parameters(pipeline), on_demand=True)
            started = await client.ask(id, {"start": {"console": str(console)}})
            if (name := started.get("started")) is None:
                raise Failed(f"{id} is under way already ({', '.join(started.values())}): see `tenure spark list`.")
            return await _watch(client, id, name, view, Console(console))


async def _watch(client: "Client", id: str, name: str, view: View, console: Console) -> "ActivityView":
    """Until it has ended. An interrupt asks it to end; a second one goes without waiting."""
    import trio

    over: list[ActivityView] = []

    async def look() -> None:
        while not over:
            found = {activity["name"]: activity for activity in (await client.describe(id))["activities"]}[name]
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
    console.copy()
    return over[0]


async def _cancel_when_interrupted(client: "Client", id: str) -> None:
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
