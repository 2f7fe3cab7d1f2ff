"""What the measurement of the autoscaler says where it saw nothing to measure."""

import json
import sys
import types

import pytest

from tenure.bench import operations
from tenure.bench.apart import NotMeasured
from tenure.bench.scaling import back_s


def test_the_time_until_lag_was_last_above_its_mark() -> None:
    assert back_s(10.0, 14.5, 451.0, []) == 4.5


@pytest.mark.parametrize("high_s", [-float("inf"), 9.0], ids=["never", "only before the step"])
def test_a_step_that_never_raised_the_lag_is_named(high_s: float) -> None:
    with pytest.raises(NotMeasured, match=r"at most 181 and never above its mark of 200.*2: busy for 93%"):
        back_s(10.0, high_s, 181.0, ["2: busy for 93%"])


def test_the_command_says_it_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def measure() -> None:
        raise NotMeasured("autoscale could not be measured: why")

    monkeypatch.setitem(sys.modules, "tenure.bench.nothing", types.SimpleNamespace(measure=measure))
    monkeypatch.setitem(operations.PARTS, "autoscale", "nothing:measure")
    assert operations.main(["--only", "autoscale", "--here"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "tenure bench: autoscale could not be measured: why\n")


def test_what_is_measured_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def measure() -> dict[str, float]:
        return {"autoscale_s": 4.5}

    monkeypatch.setitem(sys.modules, "tenure.bench.nothing", types.SimpleNamespace(measure=measure))
    monkeypatch.setitem(operations.PARTS, "autoscale", "nothing:measure")
    assert operations.main(["--only", "autoscale", "--here"]) == 0
    assert json.loads(capsys.readouterr().out) == {"autoscale_s": 4.5}
