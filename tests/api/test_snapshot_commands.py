"""Commands for snapshots, on clusters in memory."""

import json
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.scheduler.snapshots.stores import open_store
from tests.api.jobs import Counter
from tests.api.shell import Shell

PLACE = "memory:snapshot-commands"


async def _one_is_taken(client: tenure.Client) -> None:
    await client.schedule(Counter, id="a", total=1)
    await client.snapshot(PLACE)


def test_a_restore_waits_for_members_as_long_as_it_was_told(shell: Shell) -> None:
    shell.before = _one_is_taken
    shell("restore", PLACE, "--timeout", "0", code=2)
    assert "--timeout is 0" in shell.err
    shell.silences = True
    shell("restore", PLACE, "--replace", "--timeout", "3", code=3)
    assert "was not known within 3 s; nothing was changed" in shell.err
    shell.silences = False
    (restored,) = shell("restore", PLACE, "--replace", "--timeout", "3", "--json")
    assert restored["jobs"] == 1


def test_what_is_no_place_for_snapshots_is_said(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shell("snapshots", "list", str(tmp_path / "file"), code=1)
    assert "it is no folder" in shell.err
    assert shell("snapshots", "list", str(tmp_path / "nothing"), "--json") == []
    shell("snapshot", "/proc/nowhere", code=1)
    assert "can't be written: No such file or directory (/proc/nowhere" in shell.err


def test_snapshots_are_verified_and_exported_by_clients_and_commands_alike(shell: Shell, tmp_path: Path) -> None:
    told: list[Any] = []

    async def by_client(client: tenure.Client) -> None:
        await client.schedule(Counter, id="a", total=1)
        place = str(tmp_path / "place")
        taken = await client.snapshot(place)
        told.append(await client.verify_snapshot(place, name=taken["name"]))
        told.append(await client.export_snapshot(place, tmp_path / "jobs.jsonl"))
        with pytest.raises(tenure.UnknownSnapshot):
            await client.verify_snapshot(place, name="nonsense")

    shell.before = by_client
    shell("jobs")
    verified, count = told
    assert (verified["jobs"], verified["problems"], verified["whole"]) == (1, [], True)
    lines = [json.loads(line) for line in (tmp_path / "jobs.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["id"], line["state"]["total"]) for line in lines] == [("job", "a", 1)]
    assert count == 1
    assert shell("snapshots", "verify", str(tmp_path / "place"), "--json") == [verified]
    assert shell("snapshots", "export", str(tmp_path / "place"), "--json") == lines
    for pack in (tmp_path / "place" / "packs").rglob("*-0"):
        pack.write_bytes(b"")
    (damaged,) = shell("snapshots", "verify", str(tmp_path / "place"), "--json", code=1)
    assert not damaged["whole"]


def test_older_snapshots_that_stay_are_no_reason_to_say_that_there_is_none(shell: Shell) -> None:
    place = "memory:snapshot-commands-keep"

    async def one_is_damaged(client: tenure.Client) -> None:
        await client.schedule(Counter, id="a", total=1)
        taken = await client.snapshot(place)
        store = open_store(place)
        await store.write(f"snapshots/{taken['name']}.json", b"damaged")

    shell.before = one_is_damaged
    (taken,) = shell("snapshot", place, "--keep", "2", "--json", code=1)
    assert taken["jobs"] == 1
    assert "nothing older was deleted" in taken["not_deleted"]
    assert "older ones stay that were not to be kept. SnapshotDamaged: the manifest" in shell.err
