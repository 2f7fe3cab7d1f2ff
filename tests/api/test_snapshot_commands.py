"""Commands for snapshots, on clusters in memory."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.client import GridClient
from tenure.scheduler.grid.port import Grid
from tenure.scheduler.snapshots import calls, restoring
from tenure.scheduler.snapshots.claim import Claim
from tenure.scheduler.snapshots.form import Manifest
from tenure.scheduler.snapshots.stores import Memory, open_store
from tests.api.jobs import Counter
from tests.api.shell import Shell

PLACE = "memory:snapshot-commands"


async def _one_is_taken(client: tenure.Client) -> None:
    await client.schedule(Counter, id="a", total=1)
    await client.snapshot(PLACE)


def test_a_restore_waits_for_members_as_long_as_it_was_told(shell: Shell) -> None:
    shell.before = _one_is_taken
    shell("restore", PLACE, "--timeout", "0", code=2)
    assert "for --timeout. Give it more than 0 seconds" in shell.err
    shell.silences = True
    shell("restore", PLACE, "--replace", "--timeout", "3", code=3)
    assert "was not known within 3 s; nothing was changed" in shell.err
    shell.silences = False
    (restored,) = shell("restore", PLACE, "--replace", "--timeout", "3", "--json")
    assert restored["jobs"] == 1


@pytest.mark.parametrize(
    ("where", "step", "keeps_out"),
    [(Claim, "settle", False), (restoring._Restorer, "_write", True), (restoring._Restorer, "_end", False)],
)
def test_who_interrupts_a_restore_hears_whether_jobs_go_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, where: type, step: str, keeps_out: bool
) -> None:
    as_before = getattr(where, step)

    async def interrupted(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        await as_before(*arguments)

    shell.before = _one_is_taken
    monkeypatch.setattr(where, step, interrupted)
    heeded = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it
    try:
        shell("restore", PLACE, "--replace", code=1)
    finally:
        signal.signal(signal.SIGINT, heeded)
    assert "tenure: interrupted" in shell.err
    assert ("nodes keep out, and no job runs, until a snapshot is restored" in shell.err) == keeps_out


async def _begin_to_restore(grid: Grid) -> None:
    claim = Claim(grid, "after", replaces_jobs=True)
    await claim.look()
    await claim.take(Manifest("the-snapshot", 1, "f", 1, 4, [], 0, 0, 0, 0.0), 2)


@pytest.mark.parametrize("command", ["jobs", "state a", "drain node-0", "wait default"])
def test_a_restore_that_was_interrupted_is_what_commands_say(shell: Shell, command: str) -> None:
    shell.before = lambda client: _begin_to_restore(client._home._value.grid)
    shell(*command.split(), code=3)
    assert "snapshot the-snapshot was being restored here, and nobody has gone on with that" in shell.err
    assert "Run `tenure restore` again" in shell.err
    assert "no node has run" not in shell.err


def test_a_restore_that_begins_under_a_command_is_what_it_says(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of: list[int] = []

    async def asked(client: GridClient, partition: int, *_: Any, **__: Any) -> Any:
        asked_of.append(partition)
        if len(asked_of) == 1:
            await _begin_to_restore(client.grid)
        await trio.sleep(partition)
        raise tenure.NotDone(f"no answer from partition {partition}.")

    monkeypatch.setattr(GridClient, "command", asked)
    shell("jobs", code=3)
    assert "no answer from partition 0: snapshot the-snapshot was being restored here" in shell.err


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
    file = tmp_path / "jobs.jsonl"
    before = file.read_text()
    shell("snapshots", "export", str(tmp_path / "place"), "nonsense", "--to", str(file), code=1)
    assert file.read_text() == before, "an export that fails leaves the one before"
    file.write_text("")
    shell("snapshots", "export", str(tmp_path / "place"), "--to", str(file))
    assert file.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.jsonl", "place"]
    for pack in (tmp_path / "place" / "packs").rglob("*-0"):
        pack.write_bytes(b"")
    (damaged,) = shell("snapshots", "verify", str(tmp_path / "place"), "--json", code=1)
    assert not damaged["whole"]


def test_how_long_a_snapshot_may_take_can_be_said(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "memory:snapshot-commands-within"
    told: list[Any] = []
    schedule = calls.schedule_snapshots

    async def noted(client: GridClient, *arguments: Any, **options: Any) -> str:
        id = await schedule(client, *arguments, **options)
        told.append(await client.state(id))
        return id

    monkeypatch.setattr(calls, "schedule_snapshots", noted)
    shell("snapshot", place, "--every", "1h", "--within", "1200")
    shell("snapshot", place, "--every", "1h")
    assert [state["within_s"] for state in told] == [1200.0, 0.0]
    store = open_store(place)
    assert isinstance(store, Memory)
    store.slow_s = 5.0
    shell("snapshot", place, "--within", "3", code=1)
    assert "No snapshot was taken within 3 s" in shell.err
    shell("snapshot", place, "--within", "0", code=2)


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
