"""Listing snapshots, also where not all of them are well."""

import json
from pathlib import Path
from typing import Any

import pytest

from tenure.cli import main
from tenure.cli.ends import Exit
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.form import Manifest, manifest_bytes
from tenure.scheduler.snapshots.stores import Directory

pytestmark = pytest.mark.usefixtures("logs_as_they_were")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "backups" / "snapshots"
    folder.mkdir(parents=True)
    for name in ("20260101T000000.000Z", "20260103T000000.000Z"):
        (folder / f"{name}.json").write_bytes(manifest_bytes(Manifest(name, 1, "f", 1, 3, [], 17, 0, 0, 0.0)))
    return tmp_path / "backups"


def listed(place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = main(["snapshots", "list", str(place), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"format": 7}', PermissionError(13, "Permission denied")])
def test_one_that_can_not_be_read_hides_no_other(
    place: Path, damage: bytes | OSError, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = "20260102T000000.000Z"
    read_now = Directory.read_now

    def read_or_refuse(store: Directory, path: str) -> bytes:
        if damaged in path and isinstance(damage, OSError):
            raise damage
        return read_now(store, path)

    monkeypatch.setattr(Directory, "read_now", read_or_refuse)
    (place / "snapshots" / f"{damaged}.json").write_bytes(damage if isinstance(damage, bytes) else b"")
    code, rows = listed(place, capsys)
    assert code == Exit.FAILED
    assert [row.get("jobs") for row in rows] == [17, None, 17]
    assert rows[1]["name"] == damaged
    assert rows[1].keys() == {"name", "problem"}
    assert main(["snapshots", "list", str(place)]) == Exit.FAILED
    shown = capsys.readouterr()
    assert "20260103T000000.000Z" in shown.out
    assert rows[1]["problem"] in shown.out
    assert "1 snapshot can't be read, of 3:" in shown.err


def test_one_that_is_deleted_meanwhile_is_not_listed(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Catalog.names

    async def names_of_before(catalog: Catalog) -> list[str]:
        return ["20250101T000000.000Z", *await names(catalog)]

    monkeypatch.setattr(Catalog, "names", names_of_before)
    code, rows = listed(place, capsys)
    assert code == Exit.DONE
    assert [row["jobs"] for row in rows] == [17, 17]
