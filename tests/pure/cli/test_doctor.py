"""How `tenure doctor` ends: for people, and, with --strict, for alerts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure.cli import doctor as cli_doctor
from tenure.cli import examination, main
from tenure.cli.ends import Exit
from tenure.members import Standard, Verdict
from tenure.scheduler.grid.memory import MemoryCluster

HERE = Verdict("Java", Standard.WARNING, "there is none here", "Install it.")
WELL = Verdict("copies", Standard.GOOD, "every partition has its copies in place")
WARNED = Verdict("nodes", Standard.WARNING, "one: a", "Start a second one.")
WORSE = Verdict("data", Standard.BAD, "partitions 2 have lost their data", "Restore a snapshot.")


@pytest.mark.parametrize(
    ("verdicts", "code", "strict_code"),
    [
        ([WELL], Exit.DONE, Exit.DONE),
        ([WELL, WARNED], Exit.DONE, Exit.FAILED),
        ([WARNED, WORSE], Exit.FAILED, Exit.FAILED),
    ],
)
def test_warnings_count_where_strictness_is_asked_for(
    verdicts: list[Verdict], code: Exit, strict_code: Exit, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """What this machine lacks, never: members run elsewhere."""

    @asynccontextmanager
    async def connected_grid(connection: Any) -> AsyncIterator[Any]:
        grid = MemoryCluster(partitions=3, members=1).connect()
        yield grid
        grid.close()

    async def machine() -> list[Verdict]:
        return [HERE]

    async def cluster(grid: Any, *, timeout_s: float) -> list[Verdict]:
        return verdicts

    monkeypatch.setattr(cli_doctor, "connected_grid", connected_grid)
    monkeypatch.setattr(examination, "examine_machine", machine)
    monkeypatch.setattr(examination, "examine_cluster", cluster)
    assert main(["doctor"]) == code
    assert main(["doctor", "--strict"]) == strict_code
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "! Java: there is none here. Install it."
    assert [line[0] for line in told if not line.startswith("✓ members")][1 : 1 + len(verdicts)] == [
        cli_doctor.MARKS[verdict.standard.value] for verdict in verdicts
    ]
