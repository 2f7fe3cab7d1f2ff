"""Running without a job: there is nobody to report to."""

import secrets
from typing import Any

from tenure.jobs.reporting import Reporter
from tenure.scheduler.activities_port import Run

__all__ = ["SilentReporter"]


class SilentReporter(Reporter):
    """Keeps what it is told to itself. There is no other attempt, so this one counts."""

    def __init__(self, name: str) -> None:
        id = f"{name}-{secrets.token_hex(4)}"
        super().__init__(Run(tag=id, job=name, generation=0, activity="pipeline", id=id, attempt=1, kind="", work=None))

    def _say(self, line: dict[str, Any]) -> None:
        pass
