"""The compose file, brought up by Compose itself: its own text, on ports that are free here."""

import os
import shutil
import subprocess
from pathlib import Path

from tenure.members import free_port
from tests.docker.engine import INSTALL, PROJECT, Images, NoEngine, install

__all__ = ["Compose", "composer"]

COMMAND_WITHIN_S = 240
NAME = "tenure-test"


def composer() -> list[str]:
    """Compose, as it is called here; installed if it may be. Raises `NoEngine`."""
    if (found := _there()) is not None:
        return found
    if not os.environ.get(INSTALL) or os.geteuid() != 0:
        raise NoEngine(f"there is no Compose (docker-compose; or set {INSTALL}, as root)")
    install("Compose", "docker-compose")
    if (found := _there()) is None:
        raise NoEngine("Compose is not there, though it was installed")
    return found


def _there() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    return None


class Compose:
    """`docker/compose.yaml`, with these images and free ports."""

    def __init__(self, command: list[str], images: Images, folder: Path, app: Path) -> None:
        text = (PROJECT / "docker" / "compose.yaml").read_text()
        self.ports = [free_port("127.0.0.1") for _ in range(3)]
        for n, port in enumerate(self.ports, 5701):
            text = text.replace(str(n), str(port))
        text = text.replace("tenure-member:latest", images.member).replace("tenure-node:latest", images.node)
        self.file = folder / "compose.yaml"
        self.file.write_text(text)
        self._command = [*command, "--file", str(self.file), "--project-name", NAME]
        self._environment = {**os.environ, "APP": str(app)}

    @property
    def cluster(self) -> str:
        """Where its members are."""
        return "tenure@" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def __call__(self, *arguments: str) -> str:
        """What Compose prints, when it has done this."""
        done = subprocess.run(
            [*self._command, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout
