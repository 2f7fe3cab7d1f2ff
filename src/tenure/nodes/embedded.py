"""The embedded member: started with the node on a free loopback port, gone with it at the latest.

Nothing outlives it: a node without a cluster is for development and tests.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
import trio

from tenure.members import (
    Member,
    MemberSettings,
    Progress,
    half_of_the_processors,
    keep_log_small,
    logs_folder,
    marked,
    open_member,
    remove_leftovers,
    watch_heap,
)
from tenure.members.log_size import before
from tenure.nodes.errors import MemberEnded

__all__ = ["open_embedded"]

LOG = "embedded-of-"
LOG_AGE_S = 86_400.0
"""Logs of those that did not end well are kept for a day: somebody may look for the reason."""


@asynccontextmanager
async def open_embedded(*, progress: Progress | None = None) -> AsyncIterator[str]:
    """The address of a cluster of one member that lives as long as this is open. Raises `MemberEnded` if it dies."""
    # A name of its own, so that nothing that looks for a cluster on this machine joins it by accident.
    name = f"tenure-{secrets.token_hex(4)}"
    remove_leftovers(logs_folder(), LOG, ".log", age_s_min=LOG_AGE_S)
    settings = MemberSettings(
        cluster_name=name,
        port=0,
        processors=half_of_the_processors(),
        log_file=logs_folder() / f"{marked(LOG)}{name}.log",
    )
    async with open_member(settings, progress=progress) as member, trio.open_nursery() as nursery:
        nursery.start_soon(_watch, member)
        nursery.start_soon(keep_log_small, member.log_file)
        nursery.start_soon(watch_heap, member, structlog.get_logger("tenure").warning)
        host, port = member.address
        yield f"{settings.cluster_name}@{host}:{port}"
        nursery.cancel_scope.cancel()
    # It has ended as it should: nobody reads its log, and the next one has another.
    for log in (member.log_file, before(member.log_file)):
        log.unlink(missing_ok=True)


async def _watch(member: Member) -> None:
    await member.wait()
    raise MemberEnded(
        "The embedded member ended, and all jobs with it. Start the node again, or run members of their own "
        f"(`tenure member`) to keep jobs. {member.why_ended()}"
    )
