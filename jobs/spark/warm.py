"""Warm drivers: processes that keep a Spark session ready, for short jobs that can't wait for one to start.

    run ── its process: a doorman (`warm_doorman`) ── its run file, report channel, output ──► warm driver
                  └── lives as long as the run; when it dies, the run is cancelled         (one for each setting)

A warm driver is started by the first run that wants it, belongs to no run, and ends when there was none for a while.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["SOCKET", "base_settings", "home_of", "own_settings"]

SOCKET = "socket"


def base_settings(settings: dict[str, str]) -> dict[str, str]:
    """Settings that a session can't change once Spark runs."""
    return {name: value for name, value in settings.items() if not name.startswith("spark.sql.")}


def own_settings(settings: dict[str, str]) -> dict[str, str]:
    """Settings that each run may have of its own."""
    return {name: value for name, value in settings.items() if name.startswith("spark.sql.")}


def home_of(work: dict[str, Any], state: Path) -> Path:
    """The folder of the warm driver that can do this work."""
    pipeline = work.get("pipeline") or {}
    master = pipeline.get("master") or work.get("master") or "local[*]"
    settings = base_settings(pipeline.get("spark") or work.get("spark") or {})
    what = [master, settings, sys.executable, os.environ.get("JAVA_HOME", ""), os.environ.get("PYTHONPATH", "")]
    key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    return state / "warm" / key
