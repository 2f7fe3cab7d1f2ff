"""The smaller side of a split is left, where members of the larger one can be reached.

A client has its news of members from one of them. Where that one is cut off from the others, but not from the client,
the news is that the others are gone: the client closes its connections to them, and all its calls are refused for as
long as the split lasts, though most members are well. So who sees fewer members than must see each other tries the
addresses of the others, and has its news from the first that lets it in.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn, TypeAlias

import trio

from tenure.scheduler.grid.hazelcast.client import TenureClient
from tenure.scheduler.grid.hazelcast.settings import HazelcastSettings

__all__ = ["Sides"]

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
_QUORUM_TOLD = "tenure.quorum"

Where: TypeAlias = tuple[str, int]
_in_thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)


class Sides:
    """In the trio thread. `run` must run as long as the client is used."""

    def __init__(
        self,
        client: TenureClient,
        settings: HazelcastSettings,
        in_thread: Callable[..., Awaitable[Any]] = _in_thread,
    ) -> None:
        self._client, self._cluster, self._in_thread = client, settings.cluster_name, in_thread
        self._given = [_where(address) for address in settings.addresses]
        self._larger: list[Where] = []
        """Where members were when so many were seen that they answer."""
        self._tries = 0

    async def run(self) -> NoReturn:
        """Look now and then, and go over if need be."""
        few_before = False  # for a moment they are few whenever one has died and another is about to come
        while True:
            await trio.sleep(LOOK_EVERY_S)
            members = self._client.cluster_service.get_members()
            needed = max(map(_quorum, members), default=0)
            few = len(members) < needed
            if not few:
                self._larger, self._tries = [(member.address.host, member.address.port) for member in members], 0
            elif few_before:
                await self._seek(members, needed)
            few_before = few

    async def _seek(self, members: list[Any], needed: int) -> None:
        here = [(member.address.host, member.address.port) for member in members]
        others = [where for where in dict.fromkeys((*self._larger, *self._given)) if where not in here]
        if not others:
            return
        if not self._tries:
            _log.warning(
                "Of the members of cluster %s %d can be seen, and fewer than %d refuse calls: trying %s",
                self._cluster, len(here), needed, _listed(others),
            )  # fmt: skip
        where = others[self._tries % len(others)]
        self._tries += 1
        if await self._in_thread(self._client.turn_to, *where):
            _log.warning("Left %s of cluster %s for what the member at %s sees", _listed(here), self._cluster, where[0])


def _quorum(member: Any) -> int:
    told = (member.attributes or {}).get(_QUORUM_TOLD, "")
    return int(told) if told.isdigit() else 0


def _where(address: str) -> Where:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _listed(places: list[Where]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in places)
