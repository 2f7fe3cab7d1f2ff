"""The kind `tenure`: one of Tenure's own commands, run by the Tenure of the node that launches it, on its cluster.

Apart from the job type, so that a node that runs such a command does not come to know a type by it.
"""

import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

import tenure.jobs
from tenure.jobs.kinds import Command
from tenure.jobs.process_command import WrongWork
from tenure.scheduler.activities_port import Run

__all__ = ["TenureWork", "command"]

PROGRAM = [sys.executable, "-m", "tenure.cli"]


class TenureWork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work of an activity of kind `tenure`."""

    arguments: list[str]
    """Of the command `tenure`. It finds the cluster by itself."""


def command(run: Run) -> Command:
    """What to start. It says itself what there is to say: one that has ended by itself is not tried again."""
    try:
        work = msgspec.convert(run.work, TenureWork)
    except msgspec.ValidationError as error:
        raise WrongWork(f"the work of a tenure activity: {error}") from error
    source = str(Path(tenure.jobs.__file__).parents[1].parent)
    path = os.pathsep.join(part for part in (source, os.environ.get("PYTHONPATH", "")) if part)
    return Command(argv=[*PROGRAM, *work.arguments], env={"PYTHONPATH": path}, exit_is_final=True)
