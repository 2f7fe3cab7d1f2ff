"""The measurements on the memory grid, small: they come to an end, and their sums are right."""

import json
from typing import Any

import pytest

from tenure.bench import main
from tenure.bench.memory_idle import measure_idle, measure_opening, measure_takeover
from tenure.bench.memory_throughput import measure


@pytest.mark.parametrize("job_type", ["bench-counter", "bench-async-counter"])
async def test_throughput(job_type: str) -> None:
    figures = await measure(job_type, 3_000)
    assert figures["exact"] is True
    assert figures["messages_per_s"] > 0


async def test_idle_jobs() -> None:
    figures = await measure_idle(2_000, settle_s=0)
    assert figures["exact"] is True
    assert figures["idle_state_bytes"] == 8


async def test_takeover(autojump_clock: Any) -> None:
    figures = await measure_takeover(500)
    assert figures["exact"] is True
    assert figures["takeover_jobs"] > 300
    assert figures["takeover_s"] >= figures["takeover_detection_s"] > 0.5


async def test_opening_reads_all() -> None:
    small, large = await measure_opening(500), await measure_opening(2_000)
    assert small["exact"] is large["exact"] is True
    assert large["open_bytes"] > 3 * small["open_bytes"]


def test_a_measurement_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--grid", "memory", "--only", "speed"]) == 2
    assert "'speed'" in capsys.readouterr().err
    assert main(["--repeat", "0"]) == 2


def test_the_last_line_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def made_up(grid: str, name: str) -> dict[str, Any]:
        return {"messages_per_s": {"throughput": 3, "async": 5}[name], "exact": name == "throughput"}

    monkeypatch.setattr("tenure.bench.command._in_own_process", made_up)
    assert main(["--grid", "memory", "--only", "throughput", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["exact"] is True
    assert main(["--grid", "memory", "--only", "throughput,async", "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["exact"] is False
