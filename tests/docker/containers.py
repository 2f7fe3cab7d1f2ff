"""Members and nodes in containers, on this machine's own network."""

import os
import time
from pathlib import Path
from typing import Any

os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # it is an image, and none can be pulled

from testcontainers.core.container import DockerContainer

__all__ = ["Container"]

WITHIN_S = 90.0


class Container:
    """One of them: started, healthy, stopped or killed."""

    def __init__(self, image: str, arguments: list[str], *, cluster: str = "", app: Path | None = None) -> None:
        container = DockerContainer(image).with_command(arguments).with_kwargs(network_mode="host")
        if cluster:
            container.with_env("TENURE_CLUSTER", cluster)
        if app is not None:
            container.with_volume_mapping(str(app), "/app/app.py", "ro")
        self._container = container.start()
        self._docker: Any = self._container.get_wrapped_container()

    def healthy(self) -> "Container":
        """Return when its own health check says so."""
        end_s = time.monotonic() + WITHIN_S
        while (state := self._state())["Health"]["Status"] != "healthy":
            assert state["Running"], self.said()
            assert time.monotonic() < end_s, f"{state}\n{self.said()}"
            time.sleep(0.2)
        return self

    def ready(self) -> "Container":
        """Return when it has said that it is ready."""
        end_s = time.monotonic() + WITHIN_S
        while "ready" not in self.said():
            assert self._state()["Running"], self.said()
            assert time.monotonic() < end_s, self.said()
            time.sleep(0.1)
        return self

    def _state(self) -> dict[str, Any]:
        self._docker.reload()
        state: dict[str, Any] = self._docker.attrs["State"]
        return state

    def stop(self) -> int:
        """As `docker stop`, with the patience that the images ask for; returns the exit code."""
        self._docker.stop(timeout=120)
        return int(self._state()["ExitCode"])

    def kill(self) -> None:
        """As `docker kill`: SIGKILL to all of its processes."""
        self._docker.kill()

    def run(self, *command: str) -> str:
        """What a command in it prints."""
        code, printed = self._docker.exec_run(list(command))
        assert code == 0, printed
        return str(printed.decode())

    def said(self) -> str:
        """Its log so far."""
        return str(self._docker.logs().decode(errors="replace"))

    def remove(self) -> None:
        """Whatever its state is."""
        self._container.stop()
