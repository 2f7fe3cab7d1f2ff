"""Which nodes an upgrade replaces: those that are named, those that one that was stopped has left, or all."""

from collections.abc import Sequence
from typing import NamedTuple

from tenure.jobs.spawning import split
from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import UnknownNode
from tenure.scheduler.nodes_seen import live_nodes, patiently, said_nodes
from tenure.scheduler.upgrade_plan import UpgradePlan, read_plan

__all__ = ["Planned", "plan_upgrade", "planned"]


async def plan_upgrade(client: GridClient, nodes: Sequence[str] | None, spawn: str | Sequence[str] = ()) -> list[str]:
    """The nodes that would be replaced, in order: these (ids or names), or those that an upgrade that was stopped has
    left, or all that live. None: those that one with this command has left have gone since, and it is done."""
    return (await planned(client, nodes, split(spawn))).left


class Planned(NamedTuple):
    """Where an upgrade begins."""

    left: list[str]
    """The nodes that are to be replaced."""
    replaced: dict[str, str] = {}
    """Those that an upgrade that was stopped has replaced."""
    step: list[str] = []
    """Those that it was replacing,"""
    token: str = ""
    """and what the nodes say that it has started for them."""


async def planned(client: GridClient, nodes: Sequence[str] | None, command: Sequence[str]) -> Planned:
    """Which nodes are to be replaced, and how far an upgrade that was stopped has come."""
    alive = {info.id: info for info in await patiently(live_nodes, client.grid)}
    if nodes is not None:
        return Planned(_named(list(alive.values()), nodes))
    plan = await patiently(read_plan, client.grid)
    if plan is not None:
        said = {info.id for info in await patiently(said_nodes, client.grid)} | alive.keys()  # silent is not gone
        if there := [id for id in plan.left if id in said]:
            return _going_on(plan, there, command)
        if not command or plan.command == " ".join(command):
            return Planned([], plan.replaced | dict.fromkeys(plan.left, ""))
    if not alive:
        raise UnknownNode("no node lives: start one, there is nothing to upgrade")
    return Planned(sorted(alive, key=lambda id: (alive[id].name, id)))


def _going_on(plan: UpgradePlan, left: list[str], command: Sequence[str]) -> Planned:
    # A step of which none is left was over, but for saying so; and what another command has started is not wanted.
    if plan.command != " ".join(command) or set(plan.step).isdisjoint(left):
        return Planned(left, plan.replaced)
    return Planned(left, plan.replaced, plan.step, plan.token)


def _named(alive: list[NodeInfo], nodes: Sequence[str]) -> list[str]:
    found = []
    for wanted in nodes:
        ids = [info.id for info in alive if wanted in (info.id, info.name)]
        if not ids:
            raise UnknownNode(
                f"no living node is called {wanted!r}; there are {', '.join(i.id for i in alive) or 'none'}"
            )
        found += [id for id in ids if id not in found]
    return found
