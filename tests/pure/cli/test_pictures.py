"""What people see on a terminal: the demo's picture, and the bars of a download and of a bulk publish."""

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console

from tenure.cli.publish import _progress
from tenure.demo.picture import CELL, COLOURS, Picture, Scene, draw
from tenure.demo.stage import Live
from tenure.members import rich_progress
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.grid.port import Member, Ownership
from tenure.scheduler.jobtype import Registry
from tenure.scheduler.settings import NodeSettings
from tenure.testing.backend import Plan
from tenure.testing.memory_cluster import MemoryBackend, open_memory

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
SGR = {"cyan": "36", "bright_black": "90"}
"""What terminals understand by these colours."""
FIRST, SECOND = Member("m-1", "127.0.0.1", 5701), Member("m-2", "127.0.0.1", 5702)


class Terminal(io.StringIO):
    """Remembers all that was ever shown."""

    def isatty(self) -> bool:
        return True

    def seen(self) -> str:
        """Without the marks that move and colour."""
        return CONTROL.sub("", self.getvalue()).replace("\r", "\n")


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


def scene() -> Scene:
    """A node and a member are gone; two partitions wait for their next owner."""
    nodes = [
        NodeInfo("n-1", 7, pid=101, name="node-1", owned=(0, 1, 2)),
        NodeInfo("n-2", 9, pid=102, name="node-2", owned=(3, 4)),
    ]
    return Scene(
        messages=2_000,
        stored=500,
        nodes={node.id: node for node in nodes},
        alive={"n-1"},
        members={member.id: member for member in (FIRST, SECOND)},
        ownership=Ownership(3, (FIRST,), ("m-1", "m-1", "m-1", "m-1", None), "m-1"),
        events=[(1.25, f"event {n}") for n in range(8)],
    )


def shown(scene: Scene, *, colours: bool = False) -> str:
    terminal = Terminal()
    system = "standard" if colours else None
    console = Console(file=terminal, force_terminal=colours, color_system=system, width=100, highlight=False)
    console.print(draw(scene))
    return terminal.getvalue()


def test_the_picture_shows_who_has_what() -> None:
    lines = [" ".join(line.split()) for line in shown(scene()).splitlines()]
    assert lines[0].startswith("╭─ partitions, in the colours of their owners ─")
    assert f"│ {CELL * 5} │" in lines
    assert f"{CELL} node-1 101 3 127.0.0.1:5701 4" in lines
    assert f"{CELL} node-2 102 gone 127.0.0.1:5702 gone" in lines
    assert any(line.startswith("messages") and line.endswith("500 of 2,000") for line in lines)


def test_the_latest_events_are_shown() -> None:
    told = [line.strip() for line in shown(scene()).splitlines() if " s  " in line]
    assert told == [f"1.2 s  event {n}" for n in range(2, 8)]


def test_partitions_have_the_colours_of_owners_that_live() -> None:
    [cells] = [line for line in shown(scene(), colours=True).splitlines() if line.startswith("│")]
    mine, nobodys = COLOURS[0], "bright_black"
    drawn = re.findall(rf"\x1b\[(\d+)m{CELL}", cells)
    assert drawn == [SGR[mine]] * 3 + [SGR[nobodys]] * 2


def test_a_scene_of_nothing_is_drawn_too() -> None:
    assert "0 of 0" in shown(Scene())


def test_the_picture_changes_in_place_and_stays_when_it_is_closed() -> None:
    terminal = Terminal()
    picture = Picture(Console(file=terminal, force_terminal=True, width=100, highlight=False))
    now = scene()
    picture.show(now)
    assert terminal.getvalue() == "", "it is not open yet"
    picture.print("[not markup]")
    picture.open()
    picture.show(now)
    now.stored = 2_000
    picture.show(now)
    picture.close()
    picture.show(scene())
    seen = terminal.seen()
    assert "[not markup]" in seen
    assert seen.index(" 500 of 2,000") < seen.rindex(" 2,000 of 2,000")
    assert " 500 of 2,000" not in seen[seen.rindex("╭") :], "nothing is drawn once it is closed"
    assert "\x1b[1A" in terminal.getvalue(), "the cursor goes back up"


def test_what_happens_is_said_in_lines_before_there_is_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    live = Live()
    live.say("Starting members and nodes …")
    assert re.fullmatch(r" +0\.\d s  Starting members and nodes …\n", terminal.seen())
    with live:
        live.say("kill -9 of node 1")
        live.stored(3)
    assert "kill -9 of node 1" in terminal.seen()
    assert "3 of 0" in terminal.seen()


async def test_it_looks_at_the_cluster(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    plan = Plan(
        nodes=2,
        members=2,
        grid="memory",
        app=Registry(),
        partitions=6,
        backups=1,
        settings=NodeSettings(),
        seed=0,
        start=None,
        faults=None,
    )
    live = Live()
    async with open_memory(plan) as cluster, trio.open_nursery() as nursery:
        assert isinstance(cluster, MemoryBackend)
        live.watch(cluster.grid_cluster.connect(), messages=10)
        with live:
            nursery.start_soon(live.keep_looking)
            await trio.sleep(1)
            await cluster.kill(0)
            await trio.sleep(10)
        nursery.cancel_scope.cancel()
    last = terminal.seen()[terminal.seen().rindex("╭") :]
    assert re.search(rf"{CELL} node-0 +\d+ +gone", last)
    assert re.search(rf"{CELL} node-1 +\d+ +6 ", last)
    assert f"│ {CELL * 6} " in last


def test_a_download_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with rich_progress()("hazelcast.jar", 2_000_000) as advance:
        advance(500_000)
        advance(1_500_000)
    seen = terminal.seen()
    assert "Fetching hazelcast.jar" in seen
    assert "2.0/2.0 MB" in seen


def test_a_bulk_publish_has_a_bar_of_the_length_of_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    path = tmp_path / "lines"
    path.write_text("1" * 4_000)
    with path.open() as source, _progress(source) as advance:
        advance(4_000)
    seen = terminal.seen()
    assert "Publishing" in seen
    assert "4,000 bytes" in seen
    assert "━" * 40 in seen, "all of it"


def test_where_nobody_looks_there_is_no_bar(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1")
    with (tmp_path / "lines").open() as source, _progress(source) as advance:
        advance(1)
    assert capsys.readouterr().err == ""
