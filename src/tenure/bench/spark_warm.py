"""How soon a short job's first task runs, when a warm driver is there."""

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import trio

__all__ = ["measure_warm_start"]

TRIES = 5
LOOK_EVERY_S = 0.05
DEADLINE_S = 300.0


async def measure_warm_start() -> dict[str, Any]:
    """Seconds from the submission to the launch of the first task: of the first, which finds no driver, and the median
    of those after it."""
    from tenure.jobs.spark.warm import end_all

    with tempfile.TemporaryDirectory(prefix="tenure-warm-", ignore_cleanup_errors=True) as state:
        before = os.environ.get("TENURE_STATE_DIR")
        os.environ["TENURE_STATE_DIR"] = state  # of the nodes: a warm driver that is there already is none of ours
        try:
            return await _measured()
        finally:
            await trio.to_thread.run_sync(end_all, Path(state))
            os.environ.pop("TENURE_STATE_DIR")
            if before is not None:
                os.environ["TENURE_STATE_DIR"] = before


async def _measured() -> dict[str, Any]:
    from tenure.jobs.spark.types import SparkJob
    from tenure.testing import Cluster

    application = Path(__file__).parent / "spark_application.py"
    function = "tenure.jobs.spark.measuring:first_task"
    async with (
        Cluster(nodes=1, members=1, grid="hazelcast", app=str(application)) as cluster,
        cluster.client() as client,
    ):
        await client.schedule(SparkJob, id="warm", function=function, master="local[2]", warm=True, on_demand=True)
        seconds = []
        for _ in range(1 + TRIES):
            submitted_s = time.time()
            started = (await client.ask("warm", {"start": {}}))["started"]
            seconds.append(await _result(client, started) - submitted_s)
    cold, *warm = seconds
    return {
        "warm_start_s": round(median(warm), 3),
        "warm_start_max_s": round(max(warm), 3),
        "cold_start_s": round(cold, 3),
    }


async def _result(client: Any, name: str) -> float:
    with trio.fail_after(DEADLINE_S):
        while True:
            activities = {activity["name"]: activity for activity in (await client.describe("warm"))["activities"]}
            if activities[name]["ended_ms"]:
                assert activities[name]["status"] == "succeeded", activities[name]["error"]
                found: float = activities[name]["result"]
                return found
            await trio.sleep(LOOK_EVERY_S)
