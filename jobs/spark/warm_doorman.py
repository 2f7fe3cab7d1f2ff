"""The process of a run that a warm driver does: it brings the run to it, and waits for its end.

    python -m tenure.jobs.spark.warm_doorman STATE_FOLDER

It imports little, so that it is quick. Its exit code is the run's.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tenure.jobs.spark.warm import SOCKET, home_of

__all__ = ["main"]

START_DEADLINE_S = 180.0
LOOK_EVERY_S = 0.02
NOT_HANDED_ON = ("TENURE_RUN", "TENURE_RUN_FILE", "TENURE_REPORT_FD")


def main(state: str) -> int:
    """Exit codes are those of the driver; 3: there is no warm driver, and none could be started."""
    run_file = os.environ["TENURE_RUN_FILE"]
    work = json.loads(Path(run_file).read_bytes())["run"]["work"]
    home = home_of(work, Path(state))
    driver = _connected(home, work)
    if driver is None:
        print(f"the warm driver did not start; its log is {home / 'log'}", file=sys.stderr)  # noqa: T201
        return 3
    with driver:
        descriptors = [int(os.environ["TENURE_REPORT_FD"]), 1, 2]
        socket.send_fds(driver, [run_file.encode() + b"\n"], descriptors)
        answer = driver.recv(16)
    if not answer:
        print(f"the warm driver has died; its log is {home / 'log'}", file=sys.stderr)  # noqa: T201
        return 1
    return int(answer)


def _connected(home: Path, work: dict[str, object]) -> socket.socket | None:
    deadline = time.monotonic() + START_DEADLINE_S
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (driver := _connect(home)) is not None:
        return driver
    with (home / "starting").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of all who want it at the same time, one starts it
        if (driver := _connect(home)) is not None:
            return driver
        process = _start(home, work)
        while time.monotonic() < deadline and process.poll() is None:
            if (driver := _connect(home)) is not None:
                return driver
            time.sleep(LOOK_EVERY_S)
    return None


def _connect(home: Path) -> socket.socket | None:
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


def _start(home: Path, work: dict[str, object]) -> "subprocess.Popen[bytes]":
    """Start it so that it belongs to no run: without their marks, in a session of its own."""
    (home / "work.json").write_text(json.dumps(work))
    environ = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
    command = [sys.executable, "-m", "tenure.jobs.spark.warm_driver", str(home)]
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
