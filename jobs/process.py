"""External commands as jobs: `import tenure.jobs.process` (or `from tenure.jobs import ProcessJob`) in an application
lets its nodes run them. Without it no node does: who may schedule such a job may run any program.

    await client.schedule(ProcessJob, id="nightly", argv=["pg_dump", "-Fc", "shop"], cron="0 3 * * *")
"""

from typing import Any, ClassVar

import msgspec

from tenure.jobs.activity_job import ActivityJob
from tenure.jobs.process_command import ProcessWork
from tenure.scheduler.errors import WrongType
from tenure.scheduler.jobtype import job

__all__ = ["ProcessJob"]


@job("process")
class ProcessJob(ActivityJob, kw_only=True):
    """A command, run outside the node, once for each start. It has succeeded when its exit code is 0; the job's
    `last` says how it went. See `ActivityJob` for when it is started.

    An order may replace `argv`, `cwd` and `stdin`, and add to `env`: `{"start": {"env": {"DAY": "monday"}}}`.
    """

    kind: ClassVar[str] = "process"

    argv: list[str]
    """A program (looked up in the node's PATH, or by its path) and its arguments. No shell sees them."""
    env: dict[str, str] = {}
    """Set in addition to the node's environment."""
    cwd: str = ""
    """Where it runs: an absolute path; empty: in a folder of its own."""
    stdin: str = ""
    """What it reads from its standard input."""
    log_bytes_max: int = 8 * 2**20
    """Of its standard output and standard error each, the newest so much is kept in the run's folder."""

    def work(self, start: dict[str, Any]) -> Any:
        own = {
            "argv": self.argv,
            "env": self.env,
            "cwd": self.cwd,
            "stdin": self.stdin,
            "log_bytes_max": self.log_bytes_max,
        }
        env = {**self.env, **start.get("env", {})} if isinstance(start.get("env", {}), dict) else start["env"]
        try:
            return msgspec.to_builtins(msgspec.convert({**own, **start, "env": env}, ProcessWork))
        except msgspec.ValidationError as error:
            raise WrongType(f"a process can't be started so: {error}") from error
