"""The two lock files agree, carry hashes for everything, and name no place to fetch from."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)


def pins(name):
    return dict(PIN.findall((ROOT / name).read_text()))


def test_what_runs_is_pinned_as_it_was_tested():
    tested = pins("requirements.lock")
    running = pins("requirements-run.lock")
    assert "trio" in running
    assert running == {name: tested.get(name) for name in running}


def test_the_demo_needs_no_spark():
    assert "pyspark" in pins("requirements.lock")
    assert "pyspark" not in pins("requirements-run.lock")


def test_every_pin_has_a_hash_and_no_address():
    for name in ("requirements.lock", "requirements-run.lock"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        for entry in re.split(r"\n(?=[a-z0-9])", text.strip()):
            assert "--hash=sha256:" in entry, entry.splitlines()[0]
