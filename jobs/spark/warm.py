"""Warm drivers: processes that keep a Spark session ready, for short jobs that can't wait for one to start.

    run ── its process: a doorman (`warm_doorman`) ── its run file, report channel, output ──► warm driver
                  └── lives as long as the run; when it dies, the run is cancelled         (one for each setting)

A warm driver is started by the node that launches the first run that wants it: not by that run, which lets nothing of
its own survive. It belongs to no run, and ends when there was none for a while.
"""

import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

__all__ = ["PID", "WORK", "base_settings", "connect", "end_all", "has_driver", "held", "home_of", "listen"]
__all__ += ["own_settings", "start"]

SOCKET, LOCK, PID, WORK = "socket", "lock", "pid", "work.json"
LOOK_EVERY_S, END_DEADLINE_S = 0.02, 15.0
NOT_HANDED_ON = ("TENURE_RUN", "TENURE_RUN_FILE", "TENURE_REPORT_FD")
_IN_BACKGROUND = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null &'


def base_settings(settings: dict[str, str]) -> dict[str, str]:
    """Settings that a session can't change once Spark runs."""
    return {name: value for name, value in settings.items() if not name.startswith("spark.sql.")}


def own_settings(settings: dict[str, str]) -> dict[str, str]:
    """Settings that each run may have of its own."""
    return {name: value for name, value in settings.items() if name.startswith("spark.sql.")}


def home_of(work: dict[str, Any], state: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the warm driver that can do this work."""
    pipeline = work.get("pipeline") or {}
    master = pipeline.get("master") or work.get("master") or "local[*]"
    settings = base_settings(pipeline.get("spark") or work.get("spark") or {})
    what = [master, settings, sys.executable, environ.get("JAVA_HOME", ""), environ.get("PYTHONPATH", "")]
    key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    return state / "warm" / key


def start(home: Path, work: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Have a warm driver there, soon: in a session of its own, nobody's child, without the marks of a run. Of several
    that are started at the same time, one stays."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (driver := connect(home)) is not None:
        driver.close()
        return
    draft = home / f".{WORK}-{os.getpid()}"
    draft.write_text(json.dumps(work))
    draft.rename(home / WORK)
    environ = {name: value for name, value in environ.items() if name not in NOT_HANDED_ON}
    command = [sys.executable, "-m", "tenure.jobs.spark.warm_driver", str(home)]
    shell = ["/bin/sh", "-c", _IN_BACKGROUND, "tenure-warm", str(home / "log"), *command]
    subprocess.run(shell, start_new_session=True, stdin=subprocess.DEVNULL, cwd="/", env=environ, check=True)


def connect(home: Path) -> socket.socket | None:
    """A connection to the warm driver there; None: there is none, or not yet."""
    driver = socket.socket(socket.AF_UNIX)
    handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)  # addresses have 107 bytes at most, folders may be deep
    try:
        driver.connect(f"/proc/self/fd/{handle}/{SOCKET}")
    except OSError:
        driver.close()
        return None
    finally:
        os.close(handle)
    return driver


def listen(home: Path) -> socket.socket:
    """Where runs are brought to. For who holds the home."""
    server = socket.socket(socket.AF_UNIX)
    (home / SOCKET).unlink(missing_ok=True)
    handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        server.bind(f"/proc/self/fd/{handle}/{SOCKET}")
    finally:
        os.close(handle)
    server.listen(64)
    return server


def held(home: Path, patience_s: float = 0.0) -> IO[str] | None:
    """Be the warm driver there, for as long as this is open; None: another one is. Who only looks has the lock for a
    moment, so this is worth some patience."""
    lock = (home / LOCK).open("a")
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                lock.close()
                return None
            time.sleep(LOOK_EVERY_S)
        else:
            return lock


def has_driver(home: Path) -> bool:
    """Is there one, be it at its beginning?"""
    if (lock := held(home)) is None:
        return True
    lock.close()
    return False


def end_all(state: Path) -> None:
    """End all warm drivers of a state folder, and wait until they are gone."""
    for home in (state / "warm").glob("*"):
        if has_driver(home) and (pid := (home / PID).read_text()):
            os.kill(int(pid), signal.SIGTERM)
            if (lock := held(home, END_DEADLINE_S)) is not None:
                lock.close()
