"""Runbooks are run: the shell blocks of a page, one after another, as an operator would type them.

A page is Markdown. Every ```sh block is run, all of them by one bash, so that variables last; a command that fails
fails the page. A ```text block behind a ```sh block says what that prints: each of its lines must be found there, in
this order (`…` stands for anything). Ports 5700 to 5799 become ports that are free here.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tenure.members import free_port

__all__ = ["PAGES", "Block", "Page", "PageFailed", "Shell", "mismatch"]

PAGES = Path(__file__).parents[2] / "docs" / "operations"
PAGE_S = 180
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"\b57\d\d\b")
BORDER = "\N{INFORMATION SEPARATOR TWO}"
HEADER = """set -euo pipefail
trap 'printf "failed with %d: %s\\n" "$?" "$BASH_COMMAND"' ERR
"""


MARK = "TENURE_RUNBOOK"
LIFELINE = """
import os, pathlib, signal, sys
sys.stdin.buffer.read()
mark, found = sys.argv[1].encode(), True
while found:
    found = False
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            is_alive = process.joinpath("stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
            if is_alive and mark in process.joinpath("environ").read_bytes().split(b"\\0"):
                os.kill(int(process.name), signal.SIGKILL)
                found = True
        except OSError:
            pass
"""
"""Its input ends when the tests do, however they end. Then all ends that has the mark in its environment: also what
has left the group of the shell that has started it."""


class PageFailed(AssertionError):
    """A page's commands do not do what it says."""


@dataclass(frozen=True)
class Block:
    """Commands, and what they are said to print."""

    commands: str
    printed: str = ""


@dataclass(frozen=True)
class Page:
    """A runbook."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def is_alone(self) -> bool:
        """Does it bring a cluster of its own? Then it says so: `<!-- a cluster of its own -->`."""
        return "<!-- a cluster of its own -->" in self.text

    @cached_property
    def blocks(self) -> list[Block]:
        """Its shell blocks."""
        return list(_blocks(self.fences))

    @cached_property
    def fences(self) -> list[tuple[str, str]]:
        """Language and text of each code block."""
        return FENCE.findall(self.text)

    def first(self, language: str) -> str:
        """The first block in a language."""
        return next(text for found, text in self.fences if found == language)


def _blocks(fences: list[tuple[str, str]]) -> Iterator[Block]:
    for (language, text), (behind, printed) in zip(fences, [*fences[1:], ("", "")], strict=True):
        if language == "sh":
            yield Block(text, printed if behind == "text" else "")


@dataclass
class Shell:
    """A folder, an environment, ports, and the processes that pages leave running."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)
    _mark: str = field(default_factory=lambda: f"{MARK}={secrets.token_hex(8)}")
    _lifeline: subprocess.Popen[bytes] | None = None

    def here(self, text: str) -> str:
        """A text of a page, with the ports of this machine."""
        return PORT.sub(lambda found: self._port(found[0]), text)

    def _port(self, written: str) -> str:
        while written not in self._ports:
            if (port := str(free_port("127.0.0.1"))) not in self._ports.values():
                self._ports[written] = port
        return self._ports[written]

    def run(self, page: Page) -> list[str]:
        """Run a page; returns what each block has printed. Raises `PageFailed`."""
        blocks = page.blocks
        border = f"printf '\\n{BORDER}\\n'\n"
        script = HEADER + border.join(f"{self.here(block.commands)}\n" for block in blocks)
        code, printed = self._bash(script, self.folder / f"{page.name}.out")
        parts = printed.split(BORDER)
        if code != 0:
            raise PageFailed(f"{page.path.name}, block {len(parts)}, ended with {code}:\n{printed[-4000:]}")
        for number, (block, part) in enumerate(zip(blocks, parts, strict=True), 1):
            if missing := mismatch(self.here(block.printed), part):
                raise PageFailed(f"{page.path.name}, block {number}, does not print {missing!r}:\n{part[-4000:]}")
        return parts

    def _bash(self, script: str, out: Path) -> tuple[int | str, str]:
        # Into a file, not a pipe: what a page leaves running would hold a pipe open.
        file = self.folder / f"{out.stem}.sh"
        file.write_text(script)
        if self._lifeline is None:
            self._lifeline = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", LIFELINE, self._mark], stdin=subprocess.PIPE, start_new_session=True
            )
        with out.open("wb") as output:
            bash = subprocess.Popen(
                ["bash", str(file)],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            code: int | str = bash.wait(PAGE_S)
        except subprocess.TimeoutExpired:
            bash.kill()
            bash.wait()
            code = f"nothing, for {PAGE_S} s"
        return code, out.read_text(errors="replace")

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        state = {"TENURE_STATE_DIR": str(self.folder / "state"), "COLUMNS": "200", MARK: self._mark.partition("=")[2]}
        inherited = {name: value for name, value in os.environ.items() if name != "TENURE_CLUSTER"}
        return inherited | state | {"PATH": path} | {name: self.here(text) for name, text in self.environment.items()}

    def close(self) -> None:
        """End what pages have left running, as happens by itself when this process ends."""
        if self._lifeline is not None:
            self._lifeline.communicate(timeout=60)
            self._lifeline = None


def mismatch(expected: str, printed: str) -> str:
    """The first expected line that is not printed behind those before it; empty: all are."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    for line in expected.splitlines():
        wanted = " ".join(line.split())
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        if wanted and not any(pattern.fullmatch(found) for found in lines):
            return line
    return ""
