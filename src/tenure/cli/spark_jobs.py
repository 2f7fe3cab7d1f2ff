"""Pipelines and other Spark jobs of a cluster: submit, list, cancel, and end single tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.cli.connection import connected
from tenure.cli.ends import Failed, Usage
from tenure.cli.one import check_started
from tenure.cli.options import Connection
from tenure.cli.spark_view import State
from tenure.jobs.pipelines import Pipeline

if TYPE_CHECKING:
    from tenure.clients.views import ActivityView, JobDescription
    from tenure.scheduler.client import GridClient

__all__ = ["SPARK_TYPES", "activity_of", "cancel_job", "folder_of", "kill_task", "listed", "on_cluster"]
__all__ += ["row_of", "running_tasks", "submitted"]

SPARK_TYPES = ("pipeline", "spark")


def on_cluster(connection: Connection, work: Any, *arguments: Any) -> Any:
    """What the work, an async function of a client and these, returns."""
    import trio

    from tenure.jobs.spark import types  # noqa: F401  # so that the client knows them
    from tenure.scheduler.jobtype import registry

    async def run() -> Any:
        async with connected(connection, registry) as client:
            return await work(client, *arguments)

    return trio.run(run)


async def submitted(client: "GridClient", pipeline: Pipeline, id: str, options: dict[str, Any]) -> None:
    """Make the job. Raises `Usage` if no node could run it, `Failed` if it does not start."""
    from tenure.jobs.spark.types import PipelineJob, parameters

    nodes = await client.directory.nodes()
    if nodes and not any("pipeline" in node.types for node in nodes):
        raise Usage("No node runs pipelines: put `import tenure.jobs.spark.types` into the nodes' application.")
    await client.defining.schedule(PipelineJob, id, {**parameters(pipeline), **options})
    await check_started(client, id)


async def listed(client: "GridClient") -> list["JobDescription"]:
    """All Spark jobs."""
    from tenure.clients import operations

    jobs = await operations.jobs(client, None)
    return [await operations.describe(client, job["id"], None) for job in jobs if job["type"] in SPARK_TYPES]


def row_of(job: "JobDescription") -> tuple[Any, ...]:
    """A line of the list: what the newest run is at."""
    if not job["activities"]:
        return job["id"], job["type"], job["status"], "", "", ""
    activity = job["activities"][-1]
    state = State("")
    state.hear(activity)
    going = activity["status"] in ("running", "cancelling")
    what = state.sentence().removeprefix(": ") if going else activity["error"]
    return job["id"], job["type"], activity["status"], activity["name"], activity["place"], what


async def cancel_job(client: "GridClient", id: str) -> bool:
    """Ask its run to end, and forget what is queued. False: there is none."""
    answer: Mapping[str, Any] = await client.ask(id, {"cancel": True})
    return bool(answer["cancelled"])


async def activity_of(client: "GridClient", id: str) -> "ActivityView":
    """The newest run of a job. Raises `Failed` if it has never run."""
    activities: list[ActivityView] = (await client.directory.describe(id))["activities"]
    if not activities:
        raise Failed(f"{id} has not run yet.")
    return activities[-1]


def folder_of(activity: "ActivityView", id: str) -> Path:
    """The folder of a run. Raises `Failed` if it is on another machine."""
    from tenure.jobs.folders import place_of, state_folder

    state = state_folder()
    if activity["place"] != place_of(state):
        raise Failed(f"{id} runs on {activity['place'] or 'no machine yet'}: ask there.")
    return state / "runs" / activity["tag"]


async def kill_task(client: "GridClient", id: str, task: int) -> bool:
    """End one of Spark's tasks; Spark runs it again. False: no such task runs."""
    return bool((await _asked(client, id, {"kill": task}))["killed"])


async def running_tasks(client: "GridClient", id: str) -> list[dict[str, Any]]:
    """The tasks that Spark works on now."""
    found: list[dict[str, Any]] = (await _asked(client, id, {"tasks": True}))["tasks"]
    return found


async def _asked(client: "GridClient", id: str, question: dict[str, Any]) -> dict[str, Any]:
    from tenure.jobs.spark.control import ask

    activity = await activity_of(client, id)
    folder = folder_of(activity, id)
    try:
        return ask(folder, question)
    except OSError as error:
        what = f"The driver of {id} does not answer ({error.strerror or error})"
        raise Failed(f"{what}: its run is {activity['status']}.") from error
