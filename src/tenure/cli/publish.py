"""`tenure publish`: one message, or many from standard input, with every rejected line named."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Usage
from tenure.cli.lines import LINE_BYTES_MAX, LineReader
from tenure.cli.one import no_constant, parse_json
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import print_json, say
from tenure.scheduler.errors import Mistake
from tenure.scheduler.keys import checked_address, checked_id

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient
    from tenure.scheduler.jobtype import JobType

__all__ = ["publish"]

LOOK_UP_S, LOOKED_UP_MAX = 5.0, 10_000
KEEPS_UP = "the cluster does not keep up"


class Line(NamedTuple):
    """One message of the input."""

    number: int
    to: str
    message: Any
    id: str


class Rejected(NamedTuple):
    """A line that was not sent, or is not known to be stored."""

    line: int
    why: str


@dataclass
class Outcome:
    """What became of the input."""

    stored: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    ids: dict[str, None] = field(default_factory=dict)
    """Jobs that were sent to; some of them, if there are very many."""
    read: int = 0
    """The last line that was looked at."""
    unknown: list[str] = field(default_factory=list)
    """Those that are not there."""

    def reject(self, numbers: Iterable[int], why: object) -> None:
        """`why` may quote what the lines say, which need not be printable."""
        told = str(why).encode(errors="backslashreplace").decode()
        self.rejected += [Rejected(number, told) for number in numbers]

    def runs(self) -> Iterator[tuple[str, str]]:
        """Which lines were rejected, and why: those that follow each other and share a reason together."""
        runs: list[tuple[int, int, str]] = []
        for line, why in self.rejected:
            if runs and runs[-1][1:] == (line - 1, why):
                runs[-1] = (runs[-1][0], line, why)
            else:
                runs.append((line, line, why))
        for first, last, why in runs:
            yield (f"line {first}" if first == last else f"lines {first} to {last}"), why


def publish(
    to: str | None = None,
    message: str | None = None,
    /,
    *,
    message_id: Annotated[str, Parameter(name="--id")] = "",
    topic: Annotated[bool, Parameter(negative="")] = False,
    all: Annotated[bool, Parameter(negative="")] = False,
    strict: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Send messages: one, or many from standard input. Returns once they are stored: each takes effect exactly once.

    With a message: that one. With an ID alone: each line of standard input is a message to it. With neither:
    lines like {"to": "clicks", "message": {"n": 1}, "id": "order-17"}, where the id may be left out.
    Where the cluster takes nothing any more, it stops there, and says after which line.

    Parameters
    ----------
    to
        The job's id (with --topic: a topic; with --all: a job type).
    message
        The message, as JSON.
    message_id
        An id of the message: sent again under the same, it has no second effect.
    topic
        ID is a topic: every subscriber gets the message.
    all
        ID is a job type: every job of it gets the message.
    strict
        Refuse messages to jobs that are not there. Otherwise they are stored, and become dead letters.
    """
    if strict and (topic or all):
        raise Usage("--strict is for messages to jobs, by their ids.")
    if topic and all:
        raise Usage("--topic and --all can't both be meant.")
    if message is not None and message != "-":
        if to is None:
            raise Usage("A message needs somebody to go to.")
        return _publish_one(to, parse_json(message, "the message"), message_id, topic, all, strict, connection)
    if message_id or all:
        raise Usage("--id and --all are for one message; give lines of standard input an id each.")
    if sys.stdin is None or sys.stdin.isatty():
        raise Usage("No message was given: `tenure publish ID JSON`, or lines on standard input.")
    return _publish_lines(to, topic, strict, connection)


def _publish_one(to: str, message: Any, id: str, topic: bool, all: bool, strict: bool, connection: Connection) -> int:
    import trio

    unknown: list[str] = []

    async def run() -> str:
        async with connected(connection) as client:
            if topic:
                await client.publish_topic(to, message, id=id)
                return f"Stored for the subscribers of topic {to!r}."
            if all:
                from tenure.cli.one import borrow_type

                if not connection.app:
                    await borrow_type(client, to)
                await client.broadcast(to, message, id=id)
                return f"Stored for all jobs of type {to!r}."
            await client.publish(to, message, id=id, strict=strict)
            if not strict:
                unknown.extend(await _missing(client, [to]))
            return "" if unknown else f"Stored for job {to!r}."

    told = trio.run(run)
    if connection.json:
        print_json({"stored": 1, "rejected": [], "unknown": unknown})
    else:
        say(told or _warning(unknown, "Stored, but t"))
    return Exit.DONE


async def _missing(client: "GridClient", ids: Iterable[str]) -> list[str]:
    """Jobs that are not there, as far as that is known soon. What was sent to them is stored."""
    import trio

    with trio.move_on_after(LOOK_UP_S):
        return await client.defining.missing(islice(ids, LOOKED_UP_MAX))
    return []


def _warning(unknown: list[str], first: str = "T") -> str:
    some = ", ".join(map(repr, unknown[:3])) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
    return (
        f"{first}here is no job {some}: what it was sent becomes a dead letter, unless the job is made first. "
        "See `tenure dead-letters`; --strict refuses such messages."
    )


def _publish_lines(to: str | None, topic: bool, strict: bool, connection: Connection) -> int:
    import trio

    if to is not None:
        checked_address(to)
    outcome = Outcome()

    async def run() -> None:
        async with connected(connection) as client:
            reader = LineReader(sys.stdin.fileno())
            with _progress(sys.stdin) as advance:
                while chunk := await reader.chunk():
                    outcome.read = chunk[-1][0]
                    await _publish_chunk(client, chunk, to, topic, strict, outcome)
                    advance(sum(len(text) + 1 for _, text in chunk))
            outcome.unknown = await _missing(client, outcome.ids)

    try:
        trio.run(run)
    except BaseException:
        if outcome.stored or outcome.rejected:
            _tell(outcome, connection)
            if not connection.json:
                say(f"Nothing that follows line {outcome.read} was sent.")
        raise
    _tell(outcome, connection)
    return Exit.FAILED if outcome.rejected else Exit.DONE


def _tell(outcome: Outcome, connection: Connection) -> None:
    if connection.json:
        rejected = [rejected._asdict() for rejected in outcome.rejected]
        told = {"stored": outcome.stored, "rejected": rejected, "unknown": outcome.unknown, "read": outcome.read}
        print_json(told)
        return
    for lines, why in outcome.runs():
        say(f"{lines}: {why}")
    say(f"{outcome.stored} messages stored, {len(outcome.rejected)} lines rejected.")
    if outcome.unknown:
        say(_warning(outcome.unknown))


async def _publish_chunk(
    client: "GridClient", chunk: list[tuple[int, bytes]], to: str | None, topic: bool, strict: bool, outcome: Outcome
) -> None:
    from tenure.scheduler.errors import Backlogged
    from tenure.scheduler.topic import Topic

    lines = [line for number, text in chunk if (line := _parsed(number, text, to, outcome)) is not None]
    try:
        lines = await _checked(client, lines, topic, outcome)
        if strict:
            lines = await _known(client, lines, outcome)
        elif not topic and len(outcome.ids) < LOOKED_UP_MAX:
            outcome.ids.update((line.to, None) for line in lines)
        pairs: list[tuple[str | Topic, Any]] = [(Topic(line.to) if topic else line.to, line.message) for line in lines]
        ids = [line.id for line in lines] if any(line.id for line in lines) else None
        await client.publish_many(pairs, ids=ids)
    except Backlogged as error:
        unstored = {id(pair) for pair in error.unstored}
        doubtful = [line for line, pair in zip(lines, pairs, strict=True) if id(pair) in unstored]
        for line in doubtful:
            why = f"job {line.to!r} takes no more for now: {full}" if (full := error.full.get(line.to)) else KEEPS_UP
            outcome.reject([line.number], f"not known to be stored: {why}")
        outcome.stored += len(lines) - len(doubtful)
        if len(doubtful) == len(lines) and not error.full:
            raise  # of what follows it would take as long to know as little
    except BaseException:
        outcome.reject((line.number for line in lines), "not known to be stored: it was broken off here")
        raise
    else:
        outcome.stored += len(lines)


async def _known(client: "GridClient", lines: list[Line], outcome: Outcome) -> list[Line]:
    """The lines to jobs that are there."""
    missing = set(await client.defining.missing(line.to for line in lines))
    for line in lines:
        if line.to in missing:
            outcome.reject([line.number], f"there is no job {line.to!r}")
    return [line for line in lines if line.to not in missing]


def _parsed(number: int, text: bytes, to: str | None, outcome: Outcome) -> Line | None:
    """The message of a line, or None: the line is empty, or rejected."""
    if not text.strip():
        return None
    if len(text) > LINE_BYTES_MAX:
        outcome.reject([number], f"longer than {LINE_BYTES_MAX:,} bytes")
        return None
    try:
        return parse_line(number, text.decode(), to)
    except UnicodeDecodeError as error:
        outcome.reject([number], f"not UTF-8, at byte {error.start + 1}")
    except ValueError as error:
        outcome.reject([number], error)
    return None


def parse_line(number: int, text: str, to: str | None) -> Line:
    """Raises `ValueError` that says what is wrong with the line."""
    try:
        found = json.loads(text, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if to is not None:
        return Line(number, to, found, "")
    if not isinstance(found, dict) or "to" not in found or "message" not in found:
        raise ValueError('not of the form {"to": …, "message": …}')
    if unknown := found.keys() - {"to", "message", "id"}:
        raise ValueError(f"{', '.join(sorted(unknown))}: a line has only to, message and id")
    try:
        checked_address(found["to"])
    except Mistake as error:
        raise ValueError(f"to is {found['to']!r:.80}: {error}") from error
    try:
        id = checked_id(found.get("id", ""))
    except Mistake as error:
        raise ValueError(f"id is {found['id']!r:.80}: {error}") from error
    return Line(number, found["to"], found["message"], id)


async def _checked(client: "GridClient", lines: list[Line], topic: bool, outcome: Outcome) -> list[Line]:
    """The lines that fit; one that does not is rejected by itself, not with all the others of its chunk."""
    import msgspec

    known: dict[str, JobType | None] = {}
    if not topic and client.known_types.check_anything():
        await client.known_types.learn({line.to for line in lines})
        known = client.known_types.by_job
    limit, good = client.settings.message_bytes_max, []
    for line in lines:
        try:
            body = msgspec.msgpack.encode(line.message)
            if len(body) > limit:
                raise ValueError(f"the message has {len(body)} bytes; the limit is {limit}")
            if (type := known.get(line.to)) is not None:
                type.check_message(body, line.to)
        except (ValueError, OverflowError, RecursionError) as error:
            outcome.reject([line.number], error)
        else:
            good.append(line)
    return good


@contextmanager
def _progress(source: IO[str]) -> Iterator[Any]:
    """A bar on a terminal; of known length if the input is a file."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    size = os.fstat(source.fileno()).st_size or None
    columns = TextColumn("Publishing"), BarColumn(), TextColumn("{task.completed:,.0f} bytes"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size)
        yield lambda count: bar.advance(task, count)
