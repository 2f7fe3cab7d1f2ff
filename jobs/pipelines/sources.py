"""Where records come from. Every record has a key, `file:line`, and a value, which is text.

A struct's first field is named like the kind of source in TOML: `{ text = "input.txt" }` is `Text("input.txt")`.
"""

from msgspec import Struct

from tenure.jobs.pipelines.errors import BadOption

__all__ = ["SOURCES", "Csv", "Files", "Json", "Parquet", "Source", "Text", "TopicSource"]


class Source(Struct, frozen=True, omit_defaults=True):
    """The base of all sources."""


class Files(Source, frozen=True, kw_only=True):
    """A file, a folder (with its subfolders, hidden files left out) or a pattern like `logs/*.log`.

    A file's records have keys like `input.txt:0`; those of a folder or pattern have the path below it.
    """

    stream: bool = False
    """Go on with what comes: new files, and lines that are added to known ones. Text, CSV and JSON only."""
    rate: float | None = None
    """Of a stream: so many records a second at most."""
    idle_s: float | None = None
    """Of a stream: it ends when nothing new has come for so long. Without it, it goes on until it is cancelled."""
    max_batch_records: int = 100_000
    """Of a stream: a batch holds so many records at most."""

    def __post_init__(self) -> None:
        if not self.stream and (self.rate is not None or self.idle_s is not None):
            raise BadOption("rate and idle_s are for streams: add stream = true, or leave them out")
        _check_stream(self.rate, self.idle_s, self.max_batch_records)

    @property
    def path(self) -> str:
        """The file, folder or pattern."""
        found: str = getattr(self, self.__struct_fields__[0])
        return found


class Text(Files, frozen=True):
    """Lines of text, UTF-8; what is no UTF-8 becomes U+FFFD. A line ends with LF, CR LF or CR, as in Python."""

    text: str


class Csv(Files, frozen=True):
    """Rows of CSV, one a line; a value is the row as a JSON object of texts."""

    csv: str
    header: bool = True
    """Each file's line 0 names the columns."""
    columns: list[str] | None = None
    """The columns' names, where no header says them. With a header: those that must be there."""
    separator: str = ","

    def __post_init__(self) -> None:
        Files.__post_init__(self)
        if len(self.separator) != 1:
            raise BadOption(f"separator = {self.separator!r} must be one character")
        if not self.header and not self.columns:
            raise BadOption('a CSV file without a header needs columns = ["name", …]')
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise BadOption(f"columns = {self.columns} has a name twice")


class Json(Files, frozen=True):
    """JSON objects, one a line; a value is the line. Empty lines are passed over."""

    json: str


class Parquet(Files, frozen=True):
    """Rows of Parquet; the key has the row's number in its file, a value is the row as a JSON object."""

    parquet: str

    def __post_init__(self) -> None:
        Files.__post_init__(self)
        if self.stream:
            raise BadOption("a Parquet file can't grow: stream = true is for text, csv and json")


class TopicSource(Source, frozen=True):
    """Messages of a Tenure topic, as a stream: keys are `topic:0`, `topic:1`, …, a value is the message as JSON."""

    topic: str
    rate: float | None = None
    idle_s: float | None = None
    max_batch_records: int = 100_000

    def __post_init__(self) -> None:
        if not self.topic:
            raise BadOption("topic is empty: name one")
        _check_stream(self.rate, self.idle_s, self.max_batch_records)


def _check_stream(rate: float | None, idle_s: float | None, max_batch_records: int) -> None:
    if rate is not None and not rate > 0:
        raise BadOption(f"rate = {rate:g}: a stream needs more than 0 records a second")
    if idle_s is not None and idle_s < 0:
        raise BadOption(f"idle_s = {idle_s:g} can't be negative")
    if max_batch_records < 1:
        raise BadOption(f"max_batch_records = {max_batch_records}: a batch needs at least 1")


SOURCES: dict[str, type[Source]] = {"text": Text, "csv": Csv, "json": Json, "parquet": Parquet, "topic": TopicSource}
