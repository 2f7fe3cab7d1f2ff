"""The journal's promise, held against what was seen at the grid's port: one log for each partition.

From stored records alone. Whatever its writer was told to be committed must lie on one chain of
predecessors; along it epochs grow by one with each opening, and each epoch has one committer.
"""

from collections.abc import Callable

from tenure.scheduler.errors import TenureError
from tenure.scheduler.wire import Record, RecordKind, decode
from tenure.simulation.histories import Findings
from tenure.simulation.trace import Trace
from tenure.simulation.watched import Watcher

__all__ = ["RECORD_BYTES_MAX", "JournalCheck"]

RECORD_BYTES_MAX = 8 * 2**20
"""A larger one might not get through a grid in the time that a call has."""
KINDS = {RecordKind.TURNS: "turns", RecordKind.OPENING: "opening", RecordKind.CLOSING: "closing"}


class JournalCheck(Watcher):
    """Collects records as they are written and acknowledged; `findings` judges them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._records: dict[int, dict[str, Record]] = {}
        self._acknowledged: dict[int, dict[str, str]] = {}
        self._wrong: list[str] = []
        self._before: dict[int, list[dict[str, str]]] = {}
        """partition -> the logs that ended when a snapshot was restored: what was acknowledged in each"""
        self._first: dict[int, str] = {}
        """partition -> the first opening of all"""
        self._fences: set[str] = set()
        self._fenced_at: dict[int, tuple[str, int]] = {}
        """partition -> the opening that the log of now begins with, if that of before was fenced off, and its slot"""
        self.largest_bytes = 0
        self.owners: dict[int, str] = {}
        """partition -> who wrote the newest opening"""
        self.watchers: list[Callable[[str, int, int, Record], None]] = []
        """Called as a record is written, with its writer, partition and slot."""

    def written(self, writer: str, partition: int, key: bytes, value: bytes) -> None:
        record = self._decode(partition, key, value)
        if record is None:
            return
        self.largest_bytes = max(self.largest_bytes, len(value))
        if len(value) > RECORD_BYTES_MAX:
            self._wrong.append(f"partition {partition}: {writer} wrote a record of {len(value):,} bytes: {record.id}")
        known = self._records.setdefault(partition, {})
        before = known.get(record.id)
        if before is not None and _told(before) != _told(record):
            self._wrong.append(f"partition {partition}: record {record.id} was written with two contents")
        known[record.id] = record
        if record.kind == RecordKind.OPENING:
            self.owners[partition] = writer
            self._first.setdefault(partition, record.id)
        for watcher in tuple(self.watchers):
            watcher(writer, partition, int.from_bytes(key, "big"), record)
        if self._trace.detailed or record.kind != RecordKind.TURNS:
            place = f"slot {partition}.{int.from_bytes(key, 'big')}, after {record.after or 'nothing'}"
            self._trace.tell(writer, f"writes {KINDS[record.kind]} {record.id} of epoch {record.epoch} into {place}")

    def acknowledged(self, writer: str, partition: int, key: bytes, value: bytes) -> None:
        record = self._decode(partition, key, value)
        if record is None:
            return
        if record.kind == RecordKind.OPENING:
            # It counts for nothing before its head is claimed, and others may have written it again. Where a snapshot
            # is restored, one that follows nothing fences off all that was: another log begins.
            if not record.after and self._first[partition] != record.id:
                self._before.setdefault(partition, []).append(self._acknowledged.pop(partition, {}))
                self._fenced_at[partition] = record.id, int.from_bytes(key, "big")
                self._fences.add(record.id)
            return
        self._log_of(partition, int.from_bytes(key, "big"))[record.id] = writer
        if self._trace.detailed:
            slot = f"{partition}.{int.from_bytes(key, 'big')}"
            self._trace.tell(writer, f"is told that {record.id} is committed, in slot {slot}")

    def _log_of(self, partition: int, slot: int) -> dict[str, str]:
        """What was acknowledged of the log that has this slot: of what is before a fence, its writer may hear late."""
        if partition in self._before and slot < self._fenced_at[partition][1]:
            return self._before[partition][-1]
        return self._acknowledged.setdefault(partition, {})

    def _decode(self, partition: int, key: bytes, value: bytes) -> Record | None:
        try:
            return decode(value, Record)
        except TenureError as error:
            self._wrong.append(f"partition {partition}: slot {key.hex()} took what is no record: {error}")
            return None

    def commits(self, partition: int) -> int:
        """How many records of turns their writers know to be committed."""
        return len(self._acknowledged.get(partition, {}))

    def findings(self) -> Findings:
        """All that is wrong so far."""
        found = Findings(wrong=list(self._wrong))
        for partition, logs in self._before.items():
            for acknowledged in filter(None, logs):
                self._judge_log(partition, acknowledged, found)
        for partition, acknowledged in self._acknowledged.items():
            chain = self._judge_log(partition, acknowledged, found)
            fence = self._fenced_at.get(partition)
            if fence is not None and fence[0] not in chain:
                found.wrong.append(
                    f"partition {partition}: a snapshot was restored behind opening {fence[0]}, and the log that "
                    f"goes on is another one: {', '.join(list(chain)[:5])}"
                )
        return found

    def _judge_log(self, partition: int, acknowledged: dict[str, str], found: Findings) -> dict[str, None]:
        records = self._records.get(partition, {})
        tip = next(reversed(acknowledged))
        chain = self._chain(records, tip, partition, found)
        forked = [id for id in acknowledged if id not in chain]
        if forked:
            found.wrong.append(
                f"partition {partition}: committed, as {acknowledged[forked[0]]} was told, and not in the log that "
                f"ends with {tip}: {', '.join(forked[:5])}"
            )
        self._judge_epochs(partition, [records[id] for id in reversed(chain)], found)
        return chain

    def _chain(self, records: dict[str, Record], tip: str, partition: int, found: Findings) -> dict[str, None]:
        """The ids from the newest record back to the first."""
        chain: dict[str, None] = {}
        at = tip
        while at:
            record = records.get(at)
            if record is None or at in chain:
                found.wrong.append(f"partition {partition}: record {at} names a predecessor that was never written")
                break
            chain[at] = None
            at = record.after
        return chain

    def _judge_epochs(self, partition: int, log: list[Record], found: Findings) -> None:
        epoch, node = 0, ""
        if log and log[0].id in self._fences:
            epoch = log[0].epoch - 1
        for record in log:
            if record.kind == RecordKind.OPENING:
                if record.epoch != epoch + 1:
                    found.wrong.append(
                        f"partition {partition}: opening {record.id} has epoch {record.epoch} after {epoch}"
                    )
                epoch, node = record.epoch, record.node
            elif (record.epoch, record.node) != (epoch, node):
                found.wrong.append(
                    f"partition {partition}: {record.node} committed {record.id} in epoch {record.epoch}, which was "
                    f"{node}'s epoch {epoch}"
                )


def _told(record: Record) -> tuple[str, int, int]:
    """What must not change about a record once it has an id."""
    return record.after, record.kind, record.epoch
