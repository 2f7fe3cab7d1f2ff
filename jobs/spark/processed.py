"""Logs of processed keys: for each task of each stage, a file with a line `PROCESSED,<key>` for each of its records."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ProcessedLog"]


class ProcessedLog(Struct):
    """Where the logs of one run, or of one batch, are written before they are committed."""

    place: Path
    suffix: str = ".log"
    kept: list["DataFrame"] = []

    def note(self, records: "DataFrame", label: str) -> "DataFrame":
        """Write down what each task gets. The records are kept until `close`, so that this is what it gets."""
        from pyspark.sql import functions as F

        records = records.persist()
        self.kept.append(records)
        aside = self.place / f".{label}"
        records.select(F.concat(F.lit("PROCESSED,"), "key")).write.text(str(aside))
        for part in aside.glob("part-*"):
            task = int(part.name.split("-")[1])
            part.rename(self.place / f"{label}-{task}{self.suffix}")
        shutil.rmtree(aside)
        return records

    def close(self) -> None:
        """The records are not needed any more."""
        for records in self.kept:
            records.unpersist()
        self.kept.clear()
