"""Cluster managers that run drivers, asked by their own commands: YARN and Kubernetes.

Every application gets a name that nobody else uses, before it is submitted: so it is found again, also if whoever
submitted it did not live to hear its id.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from tenure.jobs.pipelines.errors import BadOption, PipelineFailed
from tenure.scheduler.errors import NotDone

__all__ = ["DEPLOY_MODE", "Kubernetes", "Manager", "State", "Yarn", "is_elsewhere", "manager_of", "name_of"]

DEPLOY_MODE = "spark.submit.deployMode"
ASK_TIMEOUT_S, SUBMIT_TIMEOUT_S = 120.0, 600.0
State = Literal["alive", "succeeded", "failed", "unknown"]
"""`unknown`: there is no such application."""


class Manager(Protocol):
    """One cluster manager."""

    def options(self, name: str) -> dict[str, str]:
        """Spark's settings that give an application the name, and have `spark-submit` return when it is submitted."""
        ...

    def find(self, name: str) -> str | None:
        """The id of the application that has the name; None: there is none. Raises `NotDone` if nobody answers."""
        ...

    def id_of(self, said: str, name: str) -> str | None:
        """The id, from what `spark-submit` has said."""
        ...

    def state(self, id: str) -> tuple[State, str]:
        """How it is, and in the manager's own words. Raises `NotDone` if nobody answers."""
        ...

    def kill(self, id: str) -> None:
        """End it. Raises `NotDone` if nobody answers."""
        ...

    def logs(self, id: str) -> str:
        """The command that shows its log."""
        ...


def is_elsewhere(master: str, settings: Mapping[str, str]) -> bool:
    """Whether the driver is to run on the cluster. Raises `BadOption` where there is no such thing."""
    mode = settings.get(DEPLOY_MODE, "client")
    if mode not in ("client", "cluster"):
        raise BadOption(f"{DEPLOY_MODE} is client or cluster, not {mode!r}")
    if mode == "cluster" and master.startswith(("local", "spark:")):
        raise BadOption(f"{master} runs no Python drivers: leave {DEPLOY_MODE} out, and the driver runs at the node")
    return mode == "cluster"


def manager_of(master: str, settings: Mapping[str, str]) -> Manager:
    """Who runs the drivers. Raises `BadOption`."""
    if master == "yarn":
        return Yarn()
    if master.startswith("k8s://"):
        return Kubernetes(master, settings)
    raise BadOption(f"there is no cluster mode for the master {master!r}: it is yarn, or k8s://…")


def name_of(tag: str) -> str:
    """The name of an attempt's application: small letters and digits, as managers want it."""
    return f"tenure-{hashlib.sha256(tag.encode()).hexdigest()[:32]}"


class Yarn:
    """By the command `yarn`; applications are found by their tags."""

    def options(self, name: str) -> dict[str, str]:
        return {
            "spark.yarn.tags": name,
            "spark.yarn.submit.waitAppCompletion": "false",
            "spark.yarn.maxAppAttempts": "1",  # who tries again is the job
        }

    def find(self, name: str) -> str | None:
        found = APPLICATION.findall(self._asked("-list", "-appStates", "ALL", "-appTags", name))
        if len(found) > 1:
            raise PipelineFailed(f"YARN has {len(found)} applications tagged {name}: {', '.join(found)}; end them")
        return found[0] if found else None

    def id_of(self, said: str, name: str) -> str | None:
        found = APPLICATION.findall(said)
        return found[0] if found else None

    def state(self, id: str) -> tuple[State, str]:
        said = self._asked("-status", id, may_fail=True)
        if (state := _field(said, "State")) is None:
            if "doesn't exist" in said or "ApplicationNotFound" in said:
                return "unknown", "not there"
            raise NotDone(f"yarn does not say how {id} is: {_last_line(said)}")
        final, why = _field(said, "Final-State") or "", _field(said, "Diagnostics") or ""
        if state not in ("FINISHED", "FAILED", "KILLED"):
            return "alive", state
        if (state, final) == ("FINISHED", "SUCCEEDED"):
            return "succeeded", final
        return "failed", f"{final or state}: {why}" if why else final or state

    def kill(self, id: str) -> None:
        self._asked("-kill", id)

    def logs(self, id: str) -> str:
        return f"yarn logs -applicationId {id}"

    def _asked(self, *arguments: str, may_fail: bool = False) -> str:
        home = os.environ.get("HADOOP_HOME")
        command = shutil.which("yarn") or (shutil.which("yarn", path=f"{home}/bin") if home else None)
        if command is None:
            raise NotDone("there is no command yarn on the PATH or in HADOOP_HOME/bin, to ask how the application is")
        return asked([command, "application", *arguments], may_fail=may_fail)


APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")


class Kubernetes:
    """By `spark-submit --status` and `--kill`; the driver's pod has the name, so there can't be two of them."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._master = master
        self._settings = {key: value for key, value in settings.items() if key.startswith("spark.kubernetes.")}
        self._namespace = settings.get("spark.kubernetes.namespace", "default")

    def options(self, name: str) -> dict[str, str]:
        return {
            "spark.kubernetes.driver.pod.name": name,
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }

    def find(self, name: str) -> str | None:
        id = f"{self._namespace}:{name}"
        return None if self.state(id)[0] == "unknown" else id

    def id_of(self, said: str, name: str) -> str | None:
        return f"{self._namespace}:{name}"

    def state(self, id: str) -> tuple[State, str]:
        said = self._asked("--status", id)
        if "Application not found" in said or "No applications found" in said:
            return "unknown", "not there"
        if (phase := _field(said, "phase")) is None:
            raise NotDone(f"Kubernetes does not say how {id} is: {_last_line(said)}")
        if phase == "Succeeded":
            return "succeeded", phase
        if phase == "Failed":
            why = _field(said, "termination reason")
            return "failed", f"{phase}: {why}" if why else phase
        return "alive", phase

    def kill(self, id: str) -> None:
        self._asked("--kill", id)

    def logs(self, id: str) -> str:
        namespace, pod = id.split(":", 1)
        return f"kubectl logs --namespace {namespace} {pod}"

    def _asked(self, what: str, id: str) -> str:
        return asked([spark_submit(), "--master", self._master, *settings_options(self._settings), what, id])


def settings_options(settings: Mapping[str, str]) -> list[str]:
    """Spark's settings as options of its commands."""
    return [option for name, value in settings.items() for option in ("--conf", f"{name}={value}")]


def spark_submit() -> str:
    """That of SPARK_HOME, or the one that comes with PySpark."""
    if home := os.environ.get("SPARK_HOME"):
        return str(Path(home) / "bin" / "spark-submit")
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def asked(command: Sequence[str], *, timeout_s: float = ASK_TIMEOUT_S, may_fail: bool = False) -> str:
    """What a command says, on both of its outputs. Raises `NotDone`."""
    shown = Path(command[0]).name
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise NotDone(f"{shown} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise NotDone(f"{shown}: {error.strerror or error}") from error
    said = done.stdout.decode(errors="replace")
    if done.returncode and not may_fail:
        raise NotDone(f"{shown} ended with exit code {done.returncode}: {_last_line(said)}")
    return said


def _field(said: str, name: str) -> str | None:
    found = re.search(rf"^[\s]*{re.escape(name)}\s*:[ \t]*(.*?)[ \t]*$", said, re.MULTILINE)
    return found[1] if found else None


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
