"""A way into a driver at work: a socket in its run's folder, for those who may see that folder.

{"tasks": true}     → {"tasks": [{"id": 12, "stage": 3, "index": 0, "running_s": 4.1, …}, …]}
{"kill": 12}        → {"killed": true}          Spark runs the task again
"""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ask", "controlled", "running_tasks"]

NAME = "control"
LINE_BYTES_MAX = 64 * 1024


@contextmanager
def controlled(spark: "SparkSession", folder: Path | None) -> Iterator[None]:
    """Answer while the block runs; without a folder, nobody can ask."""
    if folder is None:
        yield
        return
    with socket.socket(socket.AF_UNIX) as server, _address(folder) as address:
        (folder / NAME).unlink(missing_ok=True)
        server.bind(address)
        server.listen(8)
        threading.Thread(target=_serve, args=(server, spark), name="tenure-control", daemon=True).start()
        try:
            yield
        finally:
            (folder / NAME).unlink(missing_ok=True)


def ask(folder: Path, question: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """Ask the driver whose run has this folder. Raises `OSError` if it is not there."""
    with socket.socket(socket.AF_UNIX) as client, _address(folder) as address:
        client.settimeout(timeout_s)
        client.connect(address)
        client.sendall(json.dumps(question).encode() + b"\n")
        with client.makefile("rb") as lines:
            answer: dict[str, Any] = json.loads(lines.readline())
    return answer


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """A short name for the socket: addresses have 107 bytes at most, folders may be deep."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{NAME}"
    finally:
        os.close(handle)


def _serve(server: socket.socket, spark: "SparkSession") -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return  # closed: the run is over
        with client:
            try:
                client.settimeout(10)
                with client.makefile("rb") as lines:
                    question = json.loads(lines.readline(LINE_BYTES_MAX))
                client.sendall(json.dumps(_answered(spark, question)).encode() + b"\n")
            except (OSError, ValueError):
                continue


def _answered(spark: "SparkSession", question: dict[str, Any]) -> dict[str, Any]:
    if question.get("tasks"):
        return {"tasks": running_tasks(spark)}
    if "kill" in question:
        context: Any = spark.sparkContext._jsc
        number, why = int(question["kill"]), "killed by `tenure spark kill`"
        return {"killed": bool(context.sc().killTaskAttempt(number, True, why))}
    return {"error": f"there is no such question: {', '.join(question)}"}


def running_tasks(spark: "SparkSession") -> list[dict[str, Any]]:
    """The tasks that run now."""
    store = spark.sparkContext._jsc.sc().statusStore()
    found = []
    for stage in _items(store.activeStages()):
        for task in _items(store.taskList(stage.stageId(), stage.attemptId(), 10_000)):
            if task.status() == "RUNNING":
                found.append(
                    {
                        "id": task.taskId(),
                        "stage": stage.stageId(),
                        "index": task.index(),
                        "attempt": task.attempt(),
                        "executor": task.executorId(),
                        "host": task.host(),
                    }
                )
    return found


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.length()))
