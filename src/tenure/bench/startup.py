"""From the start of `tenure node` with an embedded member to the first message that it has processed."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio

import tenure
from tenure.bench.clusters import APPLICATION
from tenure.connect import parse_cluster, wall_clock_ms
from tenure.members import prepare
from tenure.members.launch import release, spawn
from tenure.nodes import load
from tenure.scheduler.client import open_client
from tenure.scheduler.errors import TryAgain
from tenure.scheduler.grid.hazelcast import HazelcastGrid

__all__ = ["measure_startup"]

WITHIN_S = 60.0


async def measure_startup() -> dict[str, Any]:
    """The jar and the JVM's archive are there; nothing else is."""
    await prepare()
    registry = load(str(APPLICATION)).registry
    folder = str(Path(tenure.__file__).parents[1])
    path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
    command = ["env", f"PYTHONPATH={path}", sys.executable, "-m", "tenure.cli", "node", str(APPLICATION), "--json"]
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as own:
        log = Path(own) / "node.log"
        began_s = time.perf_counter()
        process = spawn(command, log)
        try:
            address = await _ready(process, log)
            ready_s = time.perf_counter() - began_s
            async with (
                HazelcastGrid.connect(parse_cluster(address)) as grid,
                open_client(grid, registry=registry, now_ms=wall_clock_ms) as client,
            ):
                await client.defining.schedule("bench-counter", "first", {})
                answer = await client.ask("first", {"n": 1})
                answered_s = time.perf_counter() - began_s
        finally:
            process.terminate()
            with trio.move_on_after(WITHIN_S, shield=True):
                await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
            if process.poll() is None:
                process.kill()
                process.wait()
            release(process)
    return {"startup_s": answered_s, "startup_ready_s": ready_s, "exact": answer == 1 and process.returncode == 0}


async def _ready(process: Any, log: Path) -> str:
    """The address of its member, once the node says that it is ready."""
    with trio.move_on_after(WITHIN_S):
        while process.poll() is None:
            for line in _lines(log):
                if line.startswith("{") and line.endswith("\n") and (said := json.loads(line)).get("event") == "ready":
                    return str(said["cluster"])
            await trio.sleep(0.005)
    raise TryAgain(f"the node was not ready within {WITHIN_S:g} s:\n{''.join(_lines(log))[-2000:]}")


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines(keepends=True)
