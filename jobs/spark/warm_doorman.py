"""The process of a run that a warm driver does: it brings the run to it, and waits for its end.

    python -m tenure.jobs.spark.warm_doorman HOME

It imports little, so that it is quick. Its exit code is the run's.
"""

import os
import socket
import sys
import time
from pathlib import Path

from tenure.jobs.spark.warm import connect, has_driver

__all__ = ["main"]

START_DEADLINE_S = 180.0
NOBODY_S = 15.0
LOOK_EVERY_S = 0.02


def main(home: Path) -> int:
    """Exit codes are those of the driver; 3: there is no warm driver."""
    driver = _connected(home)
    if driver is None:
        print(f"the warm driver did not start; its log is {home / 'log'}", file=sys.stderr)  # noqa: T201
        return 3
    with driver:
        descriptors = [int(os.environ["TENURE_REPORT_FD"]), 1, 2]
        socket.send_fds(driver, [os.environ["TENURE_RUN_FILE"].encode() + b"\n"], descriptors)
        answer = driver.recv(16)
    if not answer:
        print(f"the warm driver has died; its log is {home / 'log'}", file=sys.stderr)  # noqa: T201
        return 1
    return int(answer)


def _connected(home: Path) -> socket.socket | None:
    """It was started before this run was: so it answers, or will, or is gone."""
    began_s = last_s = time.monotonic()
    while time.monotonic() - began_s < START_DEADLINE_S and time.monotonic() - last_s < NOBODY_S:
        if (driver := connect(home)) is not None:
            return driver
        if has_driver(home):
            last_s = time.monotonic()
        time.sleep(LOOK_EVERY_S)
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
