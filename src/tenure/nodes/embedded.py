"""The embedded member: started with the node on a free loopback port, gone with it at the latest.

Nothing outlives it: a node without a cluster is for development and tests.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tenure.members import Member, MemberSettings, Progress, half_of_the_processors, open_member
from tenure.nodes.errors import MemberEnded

__all__ = ["open_embedded"]


@asynccontextmanager
async def open_embedded(*, progress: Progress | None = None) -> AsyncIterator[str]:
    """The address of a cluster of one member that lives as long as this is open. Raises `MemberEnded` if it dies."""
    # A name of its own, so that nothing that looks for a cluster on this machine joins it by accident.
    settings = MemberSettings(
        cluster_name=f"tenure-{secrets.token_hex(4)}", port=0, processors=half_of_the_processors()
    )
    async with open_member(settings, progress=progress) as member, trio.open_nursery() as nursery:
        nursery.start_soon(_watch, member)
        host, port = member.address
        yield f"{settings.cluster_name}@{host}:{port}"
        nursery.cancel_scope.cancel()


async def _watch(member: Member) -> None:
    await member.wait()
    raise MemberEnded(
        "The embedded member ended, and all jobs with it. Start the node again, or run members of their own "
        f"(`tenure member`) to keep jobs. {member.why_ended()}"
    )
