"""A measurement in a process of its own that does not come to its end is told in a sentence."""

from pathlib import Path

import pytest

from tenure.bench.apart import NotMeasured, figures_of
from tenure.cli.ends import Exit, explain


def test_one_that_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "endless_measurement.py").write_text("import time; time.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NotMeasured, match=r"latency could not be measured: it was not done after 0\.2 s") as caught:
        figures_of(["endless_measurement"], "latency", 0.2)
    assert explain(caught.value, as_json=False) == Exit.FAILED
    assert "should not happen" not in capsys.readouterr().err


def test_one_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_measurement.py").write_text("raise SystemExit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NotMeasured, match="its process ended with 7"):
        figures_of(["failing_measurement"], "latency", 60)
