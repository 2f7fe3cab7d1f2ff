"""The live picture, drawn from a scene."""

from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.grid.port import Member, Ownership

__all__ = ["Picture", "Scene"]

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")
EVENTS_SHOWN = 6
CELL = "■"


@dataclass
class Scene:
    """What is known of the cluster at a moment."""

    messages: int = 0
    stored: int = 0
    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    members: dict[str, Member] = field(default_factory=dict)
    """All that were ever there."""
    ownership: Ownership | None = None
    events: list[tuple[float, str]] = field(default_factory=list)


class Picture:
    """Draws scenes in place."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._live: Live | None = None

    def open(self) -> None:
        self._live = Live(console=self.console, auto_refresh=False)
        self._live.start()

    def show(self, scene: Scene) -> None:
        if self._live is not None:
            self._live.update(draw(scene), refresh=True)

    def print(self, text: str) -> None:
        self.console.print(text, markup=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def draw(scene: Scene) -> Group:
    """The whole picture."""
    nodes = sorted(scene.nodes.values(), key=lambda node: node.name or node.id)
    colours = {node.id: COLOURS[n % len(COLOURS)] for n, node in enumerate(nodes)}
    beside = Table.grid(padding=(0, 3))
    beside.add_row(_nodes(scene, nodes, colours), _members(scene))
    return Group(
        Panel(_cells(scene, nodes, colours), title="partitions, in the colours of their owners", title_align="left"),
        beside,
        _bar(scene),
        Text("\n".join(f"{at_s:6.1f} s  {text}" for at_s, text in scene.events[-EVENTS_SHOWN:])),
    )


def _cells(scene: Scene, nodes: list[NodeInfo], colours: dict[str, str]) -> Text:
    count = len(scene.ownership.primaries) if scene.ownership else 0
    styles = ["bright_black"] * count
    for node in nodes:
        if node.id in scene.alive:
            for partition in node.owned:
                if partition < count:
                    styles[partition] = colours[node.id]
    text = Text()
    for style in styles:
        text.append(CELL, style=style)
    return text


def _nodes(scene: Scene, nodes: list[NodeInfo], colours: dict[str, str]) -> Table:
    table = Table("node", "pid", "partitions", title_justify="left", box=None)
    for node in nodes:
        alive = node.id in scene.alive
        owned = str(len(node.owned)) if alive else "gone"
        style = colours[node.id] if alive else "bright_black"
        table.add_row(f"{CELL} {node.name or node.id}", str(node.pid), owned, style=style)
    return table


def _members(scene: Scene) -> Table:
    table = Table("member", "primary for", box=None)
    there = {member.id for member in scene.ownership.members} if scene.ownership else set()
    primaries = scene.ownership.primaries if scene.ownership else ()
    for member in sorted(scene.members.values(), key=lambda member: member.port):
        held = str(primaries.count(member.id)) if member.id in there else "gone"
        table.add_row(f"{member.host}:{member.port}", held, style="" if member.id in there else "bright_black")
    return table


def _bar(scene: Scene) -> Table:
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(scene.messages or 1, scene.stored, width=40)
    row.add_row("messages", bar, f"{scene.stored:,} of {scene.messages:,}")
    return row
