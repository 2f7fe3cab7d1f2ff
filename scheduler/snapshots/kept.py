"""What a restore keeps of the cluster whose place it takes, and what goes on after it by itself.

Dead letters were acknowledged, and no snapshot has those that came after it: they are kept beside the snapshot's own. A
schedule of snapshots goes on where the snapshot is restored over the very cluster that it was taken of; elsewhere that
cluster may still be alive, and write to the same place.
"""

from collections.abc import Callable, Container, Iterable
from random import Random
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from tenure.scheduler.grid.port import Grid, GridError, Map
from tenure.scheduler.journal import Journal
from tenure.scheduler.keys import HEAD
from tenure.scheduler.settings import NodeSettings
from tenure.scheduler.snapshots.schedule import job_of
from tenure.scheduler.wire import DeadLetter, Envelope, Head, JobRecord, Status, decode

__all__ = ["Identity", "identity", "letters_there", "merged", "resume", "schedules_in"]

READABLE = NodeSettings(lost_after_s=2.0)
"""What can't be read within so long is damaged or lost."""
Identity = tuple[Any, ...]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_record = msgspec.msgpack.Decoder(JobRecord).decode


async def letters_there(
    grid: Grid, partition: int, random: Random, new_id: Callable[[], str]
) -> list[DeadLetter] | None:
    """The dead letters of a partition that nobody commits to any more. None: they can't be read."""
    attempt = 0
    journal = Journal(
        grid, partition, formation="", settings=READABLE, new_id=new_id, random=random, report=lambda text: None
    )
    while True:
        try:
            stored = await grid.get(Map.HEADS, partition, HEAD)
            if stored is None:
                return []
            journal.formation = decode(stored, Head).formation
            await journal.read()
            await journal.follow()
            return list(journal.state.dead.values())
        except GridError:
            attempt += 1
            await journal.pause(attempt)
        except Exception:  # noqa: BLE001  # what no node can replay is what somebody restores for
            return None


def merged(
    letters: list[DeadLetter], there: Iterable[DeadLetter], waiting: Iterable[Envelope], strays: Container[Identity]
) -> list[DeadLetter]:
    """Both, each once. What is `waiting` in a mailbox again is no dead letter besides. `strays`: the snapshot's letters
    that are restored to other partitions than they lay in."""
    there = list(there)
    slots = {letter.envelope.slot for letter in there}  # few, and cheaply compared, where very many wait
    known = {identity(letter.envelope) for letter in letters}
    known.update(identity(envelope) for envelope in waiting if envelope.slot in slots)
    kept = ((identity(letter.envelope), letter) for letter in there)
    return letters + [letter for same, letter in kept if same not in known and same not in strays]


def identity(envelope: Envelope) -> Identity:
    """What one message is known by, wherever it lies: its place in its sender's lane, in which cluster."""
    return envelope.to, envelope.slot, envelope.index, envelope.origin, envelope.id, bytes(envelope.body)


def schedules_in(jobs: dict[str, Raw]) -> list[str]:
    """The ids of those that schedule snapshots."""
    return [id for id in jobs if id.startswith(job_of(""))]


def resume(record: Raw, formation: str) -> Raw | None:
    """The same schedule as one of this cluster. None: it takes none for a reason of its own.

    (It may have no timer: what rang for the very snapshot waits in its mailbox.)"""
    found = _decode_record(record)
    state = _decode(found.state)
    if found.status != Status.RUNNING or state.get("stopped") or not state.get("every_s"):
        return None
    return Raw(_encode(replace(found, state=_encode(state | {"formation": formation}))))
