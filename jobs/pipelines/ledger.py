"""What a stream remembers: which pipeline it is, and which batches are done.

STATE/stream.json              which pipeline this is the state of, and the stream's own id
STATE/lock                     held by who is at work on it
STATE/chunks/                  what was taken in (see `intake`)
STATE/batches/000000012.json   batch 12 is done: written when all that belongs to it is in its place
STATE/state/LABEL/000000012/   what a stage remembers after batch 12
STATE/spark/                   Spark's own checkpoint
STATE/printing.*               what is being printed to a console that is a file (see `jobs/spark/printing.py`)
"""

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from tenure.jobs.pipelines.errors import StateInUse, StateMismatch
from tenure.jobs.pipelines.spec import Pipeline

__all__ = ["Batch", "Ledger"]

KEPT_BATCHES, KEPT_STATES = 100, 2


class _Stream(Struct, frozen=True, kw_only=True):
    id: str
    pipeline: str
    meaning: str


class Batch(Struct, frozen=True, kw_only=True):
    """What is known of a batch that is done."""

    number: int
    records: int = 0
    results: int = 0
    """So many records came out of it."""
    late: int = 0
    closed_us: dict[str, int] = {}
    """By stage: windows that end until then are closed."""


class Ledger:
    """The state of a stream, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream = ""
        """The stream's id: it stays when it is run again, and names its output."""

    @contextmanager
    def held(self, pipeline: Pipeline) -> Iterator[None]:
        """Be the one who works on it. Raises `StateInUse`, `StateMismatch`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "batches").mkdir(exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StateInUse(f"another run is at work on the stream in {self.folder}: wait, or end it") from error
            self._identify(pipeline)
            yield

    def _identify(self, pipeline: Pipeline) -> None:
        path, meaning = self.folder / "stream.json", _meaning(pipeline)
        if path.exists():
            known = msgspec.json.decode(path.read_bytes(), type=_Stream)
            if known.meaning != meaning:
                raise StateMismatch(
                    f"the state in {self.folder} is of another pipeline ({known.pipeline}, other source or stages): "
                    "remove it to begin anew, or name another folder with state = …"
                )
            self.stream = known.id
            return
        known = _Stream(id=secrets.token_hex(8), pipeline=pipeline.name, meaning=meaning)
        aside = path.with_name(f".stream-{os.getpid()}")
        aside.write_bytes(msgspec.json.encode(known))
        aside.rename(path)
        self.stream = known.id

    def done(self, number: int) -> Batch | None:
        """What is known of the batch, if it is done."""
        path = self.folder / "batches" / f"{number:09}.json"
        return msgspec.json.decode(path.read_bytes(), type=Batch) if path.exists() else None

    def last(self) -> Batch | None:
        """The newest batch that is done."""
        paths = sorted((self.folder / "batches").glob("[0-9]*.json"))
        return msgspec.json.decode(paths[-1].read_bytes(), type=Batch) if paths else None

    def mark(self, batch: Batch) -> None:
        """It is done: from now on it is passed over. What only its predecessors needed goes."""
        path = self.folder / "batches" / f"{batch.number:09}.json"
        aside = path.with_name(f".{path.name}")
        aside.write_bytes(msgspec.json.encode(batch))
        aside.rename(path)
        for old in (self.folder / "batches").glob("[0-9]*.json"):
            if int(old.stem) <= batch.number - KEPT_BATCHES:
                old.unlink(missing_ok=True)
        for label in (self.folder / "state").glob("*"):
            for old in sorted(label.glob("[0-9]*"))[:-KEPT_STATES]:
                shutil.rmtree(old, ignore_errors=True)

    def state(self, label: str, before: int) -> Path | None:
        """What a stage remembered before a batch; None: nothing."""
        known = [path for path in (self.folder / "state" / label).glob("[0-9]*") if int(path.name) < before]
        return max(known, default=None)

    @contextmanager
    def new_state(self, label: str, number: int) -> Iterator[Path]:
        """A place to write what a stage remembers after a batch in; kept when the block ends well."""
        place = self.folder / "state" / label / f"{number:09}"
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f".{place.name}-{os.getpid()}")
        try:
            yield aside
            shutil.rmtree(place, ignore_errors=True)  # of a try at this batch that did not get to its end
            aside.rename(place)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _meaning(pipeline: Pipeline) -> str:
    """A fingerprint of what the state depends on: not how many tasks there are, or where the results go."""
    declared = pipeline.declared()
    stages = [{name: value for name, value in stage.items() if name not in NO_MEANING} for stage in declared["stages"]]
    source = {name: value for name, value in declared["source"].items() if name not in NO_MEANING}
    return hashlib.sha256(msgspec.json.encode([source, stages, pipeline.labels], order="sorted")).hexdigest()


NO_MEANING = ("tasks", "name", "rate", "idle_s", "max_batch_records", "timeout_s", "attempts_max")
