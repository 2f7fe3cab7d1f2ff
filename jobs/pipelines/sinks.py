"""Where results go."""

from msgspec import Struct

from tenure.jobs.pipelines.errors import BadOption

__all__ = ["Sink"]


class Sink(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One or more places. Readers of a folder never see half a result: it appears by a rename."""

    text: str | None = None
    """A folder: `part-*` files, one `key: value` a line."""
    parquet: str | None = None
    """A folder of Parquet files with columns `key` and `value`."""
    topic: str | None = None
    """A topic of Tenure: each result is a message `{"key": …, "value": …}`."""
    console: bool = False
    """Results are printed as they come."""
    overwrite: bool = False
    """Output that is there already is replaced, once the new one is complete."""

    def __post_init__(self) -> None:
        if not (self.console or self.text or self.parquet or self.topic):
            raise BadOption("a sink needs a place: text, parquet, topic or console")
        if self.text is not None and self.text == self.parquet:
            raise BadOption(f"text and parquet can't share the folder {self.text!r}")

    @property
    def folders(self) -> list[str]:
        """The folders that it writes."""
        return [folder for folder in (self.text, self.parquet) if folder is not None]
