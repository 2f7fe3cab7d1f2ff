"""Snapshots on real processes: consistent under load, whoever is killed; restored when the whole grid is gone."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import tenure
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.stores import Directory
from tenure.testing import Cluster
from tests.cluster import ledger as application
from tests.cluster.ledger import ACCOUNTS, CLOCK_IDS, CLOCKS, EVERY, RINGS, SINKS, Account, Ledger, under_load

pytestmark = pytest.mark.cluster


async def test_killed_amid_snapshots_then_all_lost_then_restored(tmp_path: Path) -> None:
    place, store = str(tmp_path / "place"), Directory(tmp_path / "place")
    floors: dict[str, dict[str, int]] = {}
    async with under_load(members=2) as (cluster, ledger):
        await taken(ledger, place, floors)
        # The one who asks for it is killed: there is none, and the one before is as it was.
        before = await parts(store)
        asking = command(await cluster.address(), "snapshot", place)
        await begun(store, before)
        asking.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(asking.communicate)
        assert asking.returncode == -signal.SIGKILL
        assert [snapshot["name"] for snapshot in await ledger.client.snapshots(place)] == list(floors)
        assert (await Catalog(store).verify()).problems == []
        # A node is killed: it is begun anew, and comes to its end.
        async with trio.open_nursery() as nursery:
            before = await parts(store)
            nursery.start_soon(taken, ledger, place, floors)
            await begun(store, before)
            await cluster.kill(0)
        await trio.sleep(1)
        await ledger.check()
    assert len(floors) == 2
    for name in floors:
        assert (await Catalog(store).verify(name)).problems == []
    async with Cluster(nodes=1, members=1, grid="hazelcast", app=application.__file__, partitions=61) as cluster:
        # Killed amid restoring: nodes keep out of what is half done, until it is run again.
        restoring = command(await cluster.address(), "restore", place)
        await trio.sleep(4)
        restoring.kill()
        await trio.to_thread.run_sync(restoring.communicate)
        async with cluster.client() as client:
            with pytest.raises(tenure.TryAgain):
                await client.partitions(timeout_s=2)
        for name, floor in floors.items():
            restored = command(await cluster.address(), "restore", place, "--name", name, "--replace", "--json")
            output, _ = await trio.to_thread.run_sync(restored.communicate)
            assert restored.returncode == 0, output
            assert json.loads(output)["jobs"] == ACCOUNTS + SINKS + CLOCKS
            async with cluster.client() as client:
                await assert_consistent(client, floor)
        await instructed(cluster, place)


async def instructed(cluster: Cluster, place: str) -> None:
    """The same by a job: it loads the newest snapshot, which it is not in; another one ends all nodes."""
    async with cluster.client() as client:
        before = {id: (await client.state(id)).last for id in ("account-0", "account-1")}
        await client.publish("account-0", {"n": before["account-0"] + 1})
        await client.schedule("tenure.lifecycle", id="lifecycle")
        await client.ask("lifecycle", {"do": "load", "url": place, "replace": True})
        with trio.fail_after(120):
            while "lifecycle" in {job["id"] for job in await client.jobs(timeout_s=60)}:  # noqa: ASYNC110
                await trio.sleep(0.5)
        assert {id: (await client.state(id)).last for id in before} == before
        await client.schedule("tenure.lifecycle", id="lifecycle")
        await client.ask("lifecycle", {"do": "shutdown"})
        with trio.fail_after(120):
            while await cluster.nodes():  # noqa: ASYNC110
                await trio.sleep(0.2)


async def taken(ledger: Ledger, place: str, floors: dict[str, dict[str, int]]) -> None:
    """Take one, and note what had been acknowledged before."""
    floor = dict(ledger.acknowledged)
    snapshot = await ledger.client.snapshot(place)
    floors[snapshot["name"]] = floor


def command(cluster: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """One of Tenure's commands, in a process of its own."""
    call = [sys.executable, "-m", "tenure.cli", *arguments, "--cluster", cluster]
    return subprocess.Popen(call, stdout=subprocess.PIPE)


async def parts(store: Directory) -> set[str]:
    """What there is of snapshots, whole ones and others."""
    return {stored.path for folder in ("parts", "packs") for stored in await store.files(folder)}


async def begun(store: Directory, before: set[str]) -> None:
    """Something of the next snapshot is there."""
    with trio.fail_after(60):
        while await parts(store) <= before:  # noqa: ASYNC110  # no event tells
            await trio.sleep(0.02)


async def assert_consistent(client: tenure.Client, floor: dict[str, int]) -> None:
    """Each account has taken a beginning of what was sent, as far as was acknowledged at least; timers have gone on to
    their end, each once; and what both have passed on has arrived, once."""
    accounts: dict[str, Account] = {}
    with trio.fail_after(60):
        while True:
            accounts = {id: await client.state(id) for id in floor}
            sinks = [await client.state(f"sink-{n}") for n in range(SINKS)]
            arrived = {id: sum(sink.seen.get(id, 0) for sink in sinks) for id in (*floor, *CLOCK_IDS)}
            passed = {id: account.last // EVERY for id, account in accounts.items()}
            if arrived == passed | dict.fromkeys(CLOCK_IDS, RINGS):
                break
            assert all(arrived[id] <= count for id, count in passed.items())
            await trio.sleep(0.2)
    assert not any(account.disordered for account in accounts.values())
    assert {id for id, account in accounts.items() if account.last < floor[id]} == set()
    assert not any([(await client.state(id)).doubled for id in CLOCK_IDS])
    passed_on = sum(count * (count + 1) // 2 for count in arrived.values())
    assert sum(sink.total for sink in sinks) == passed_on
