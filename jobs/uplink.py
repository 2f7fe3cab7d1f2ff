"""A run's way to its job: a client of the cluster, connected for as long as it takes, and again when it is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from msgspec import Raw

from tenure.jobs.logs import remark
from tenure.scheduler.activities_wire import Report
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import NotDone, TenureError
from tenure.scheduler.keys import partition_of
from tenure.scheduler.texts import told
from tenure.scheduler.wire import Envelope, Kind

__all__ = ["ClientUplink", "open_cluster_uplink"]

ANSWER_DEADLINE_S = 5.0
CONNECT_PAUSE_S = 1.0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, str]).decode


class ClientUplink:
    """Reports by a client, which may come later, and change."""

    def __init__(self, client: GridClient | None = None) -> None:
        self.client = client
        self.connected = trio.Event()

    async def report(self, job: str, report: Report) -> str:
        """See `tenure.jobs.attempt.Uplink`."""
        client = self.client
        if client is None:
            with trio.move_on_after(ANSWER_DEADLINE_S):
                await self.connected.wait()
            client = self.client
            if client is None:
                raise NotDone("the cluster can't be reached")
        envelope = Envelope(job, Raw(_encode(report)), Kind.REPORT)
        try:
            answer = await client.question(partition_of(job, client.partition_count), envelope, ANSWER_DEADLINE_S)
            return _decode(answer)["verdict"]
        except (TenureError, msgspec.DecodeError, KeyError) as error:
            # Whatever it is, the run has nobody else to turn to: until it gives up, it asks again.
            raise NotDone(f"no answer from job {job!r}: {error}") from error


@asynccontextmanager
async def open_cluster_uplink(cluster: dict[str, Any]) -> AsyncIterator[ClientUplink]:
    """An uplink to the cluster that a run file names. Entered at once, whether or not it can be reached."""
    uplink = ClientUplink()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_keep_connected, uplink, cluster)
        yield uplink
        nursery.cancel_scope.cancel()


async def _keep_connected(uplink: ClientUplink, cluster: dict[str, Any]) -> None:
    import time
    from dataclasses import replace

    from tenure.scheduler.client import open_client
    from tenure.scheduler.grid.hazelcast import HazelcastGrid, HazelcastSettings
    from tenure.scheduler.jobtype import Registry

    settings = HazelcastSettings(**{**cluster, "addresses": tuple(cluster["addresses"])})
    while True:
        try:
            async with (
                HazelcastGrid.connect(settings) as grid,
                open_client(grid, registry=Registry(), now_ms=lambda: time.time_ns() // 1_000_000) as client,
            ):
                uplink.client = client
                uplink.connected.set()
                try:
                    await trio.sleep_forever()
                finally:
                    # Members come and go: those of the run file may be long gone.
                    members = tuple(member.address for member in grid.ownership().members)
                    settings = replace(settings, addresses=members or settings.addresses)
        except Exception as error:  # noqa: BLE001  # whatever it is, the work goes on for a while, and we try again
            remark(f"the cluster can't be reached: {told(error)}")
            await trio.sleep(CONNECT_PAUSE_S)
        finally:
            uplink.client, uplink.connected = None, trio.Event()
