"""Snapshots that other versions have taken, or had a part in: read, restored and kept like our own."""

import base64
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
import trio

from tenure.listeners import listening
from tenure.scheduler.client import open_client
from tenure.scheduler.grid.memory import MemoryCluster
from tenure.scheduler.host import Host
from tenure.scheduler.jobtype import Job, JobType, Registry
from tenure.scheduler.node import Node
from tenure.scheduler.snapshots import calls
from tenure.scheduler.snapshots.catalog import Catalog
from tenure.scheduler.snapshots.errors import SnapshotDamaged
from tenure.scheduler.snapshots.form import Manifest, PartRef, digest_of, manifest_bytes, manifest_path, read_manifest
from tenure.scheduler.snapshots.restoring import restore_snapshot
from tenure.scheduler.snapshots.stores import MEMORIES, Memory

NAME = "20231114T222959.812Z"
MANIFEST = b"""{
 "name": "20231114T222959.812Z",
 "taken_ms": 1700000999812,
 "formation": "older",
 "incarnation": 1,
 "partition_count": 3,
 "parts": [
  {
   "path": "parts/992d984cdf9e8a08/00000",
   "digest": "63611506dce19fad116796eceafcbbdb"
  },
  {
   "path": "parts/992d984cdf9e8a08/00001",
   "digest": "2425df08eb25aefdc0ee37d5842ef03c"
  },
  {
   "path": "parts/992d984cdf9e8a08/00002",
   "digest": "5ba874da164acce99ab54b763ca2850d"
  }
 ],
 "jobs": 3,
 "size_bytes": 343,
 "written_bytes": 262,
 "duration_s": 0.404,
 "grid_format": 1,
 "format": 1,
 "checksum": "34f2a4acfca69bb1d655370ca90ef045"
}
"""
"""As commit c95cb39 wrote it, which named no packs. Partition 0 refers to one that the snapshot before has written."""
FILES = {
    "packs/f6d161f9be3d2c27/00000-0": (
        "cmZQ%n9{T`dEU~3oW#sLMn=ZvMWuOpnR)3)SQ;1RF)$uDFyX)vh6NKACgM=S$OKc;v@r3A1S7)?h*1p)qZk()VOW@qTdrXO09!mZZ~"
    ),
    "packs/992d984cdf9e8a08/00002-0": (
        "cmZQ%n9{f~Y2MO;oW#sLMn=ZvMWuOpnR)3)SQ;1Ru`(YxFyX)vh6NLVYK}-SGR%OeYe1-DTyTV;VFCc^(j1W"
    ),
    "parts/992d984cdf9e8a08/00000": (
        "cmZQ%n9VS8Dg#5{5rKKL+T!`<|9&v7+U#5CQY~|)iIesfBqnDU>!+Ee7@8TTStg|#rx+z0nd=*XfUZFx(}acz4GrfR7#O?He_6hp5deBO9Lx"
    ),
    "parts/992d984cdf9e8a08/00001": ("cmZQ%n9Vq00>gxc2@MSli~t{81YZ"),
    "parts/992d984cdf9e8a08/00002": (
        "cmZQ%n9VeCDg%S_5rIP)jeL@o5-$JFWG*UOtdzt!aninm#N_N^eM?KD6iW+}<dihaREtCd3w;A1Fw!+}W}MJ4p`qbC0|R6C`7g`&FaiK4&l`0"
    ),
}
CURRENT = Manifest("n", 1, "é\u2028\"'", 1, 2, [PartRef("p", "00"), PartRef("q", "01")], 3, 4, 5, 0.5, ["packs/p/0"])


class Plain(Job):
    n: int = 0

    def on_message(self, ctx: Any, message: int) -> int:
        self.n += message
        return self.n


REGISTRY = Registry(JobType("plain", Plain))


def now_ms() -> int:
    return 1_700_001_000_000 + round(trio.current_time() * 1000)


@pytest.fixture
def older() -> Memory:
    """A place with a snapshot of the older version."""
    MEMORIES["memory:older"] = store = Memory()
    store.content = {path: base64.b85decode(content) for path, content in FILES.items()}
    store.content[manifest_path(NAME)] = MANIFEST
    return store


async def test_one_of_an_older_version_is_listed_verified_and_restored(older: Memory, autojump_clock: Any) -> None:
    (row,) = await calls.snapshots("memory:older")
    assert (row["name"], row["jobs"]) == (NAME, 3)
    assert (await calls.verify("memory:older"))["problems"] == []
    cluster = MemoryCluster(partitions=2)
    grid = cluster.connect()
    restored = await restore_snapshot(grid, older, now_ms)
    assert restored.jobs == 3
    host = Host(cluster.connect(), "n", REGISTRY, now_ms, restored.formation, restored.incarnation, random=Random(1))
    async with trio.open_nursery() as nursery, open_client(grid, registry=REGISTRY, now_ms=now_ms) as client:
        await nursery.start(Node(host, listening).run)
        assert [await client.ask(id, 10) for id in "abc"] == [11, 15, 10]
        nursery.cancel_scope.cancel()


def test_the_checksum_is_of_what_is_stored_whichever_fields_we_know() -> None:
    stored = manifest_bytes(CURRENT)
    assert msgspec.structs.replace(read_manifest(stored, "n"), checksum="") == CURRENT
    fields = msgspec.json.decode(stored)
    # As it was computed before: of the struct. What was written so is still read.
    of_struct = msgspec.json.encode(msgspec.structs.replace(CURRENT, checksum=""))
    assert fields["checksum"] == digest_of(of_struct).hex()
    # A newer version's field, before the checksum or behind it.
    for extended in ({"later": {"a": [1, 2.5]}, **fields}, {**fields, "later": None}):
        whole = msgspec.json.encode({**extended, "checksum": ""})
        newer = msgspec.json.encode({**extended, "checksum": digest_of(whole).hex()})
        assert read_manifest(newer, "n").packs == CURRENT.packs
        with pytest.raises(SnapshotDamaged):
            read_manifest(newer.replace(b'"later"', b'"lates"'), "n")


@pytest.mark.parametrize("stored", [MANIFEST, manifest_bytes(CURRENT)])
def test_any_damaged_byte_is_found(stored: bytes) -> None:
    good = read_manifest(stored, "n")
    for at in range(len(stored)):
        for flipped in (stored[at] ^ 1, stored[at] ^ 0x20, 0):
            damaged = stored[:at] + bytes([flipped]) + stored[at + 1 :]
            try:
                read = read_manifest(damaged, "n")
            except SnapshotDamaged:
                continue
            # Only spaces between the values may be others.
            assert read == good
            assert stored[at : at + 1].isspace()
    for start, end in pairwise(range(0, len(stored), 7)):
        with pytest.raises(SnapshotDamaged):
            read_manifest(stored[:start] + stored[end:], "n")


async def test_what_an_older_version_s_manifest_needs_is_kept_though_it_names_no_packs(
    older: Memory, autojump_clock: Any
) -> None:
    catalog = Catalog(older)
    older.age_s = 7200.0
    older.content["packs/nobodys/00000-0"] = b""
    assert await catalog.retain(1) == []
    assert older.content.keys() == {*FILES, manifest_path(NAME)}
    assert (await catalog.verify()).problems == []
    # What it needs can't be known: nothing goes.
    newer = "20231115T000000.000Z"
    await catalog.add(msgspec.structs.replace(await catalog.read(), name=newer))
    del older.content["parts/992d984cdf9e8a08/00002"]
    before = dict(older.content)
    with pytest.raises(SnapshotDamaged, match=f"00002 is missing. So it is not known what snapshot {newer} needs"):
        await catalog.retain(1)
    assert older.content == before
