"""`tenure dead-letters`: messages that no job could take; list, replay, discard."""

import time
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import as_json, counted, print_json, print_table, say, when
from tenure.cli.unheard import say_silent
from tenure.scheduler.errors import TenureError

__all__ = ["app"]

app = cyclopts.App(
    name="dead-letters", help="Messages that no job could take: list, replay, discard.", help_format="plaintext"
)


@app.default
def list_letters(*, to: str | None = None, connection: Connection = USUAL_CONNECTION) -> int:
    """List dead letters, oldest first; each with its name, PARTITION.NUMBER.

    Parameters
    ----------
    to
        Only those for jobs of this id (* stands for anything).
    """
    letters, lost, silent = _run(_listed, connection, to)
    if connection.json:
        for letter in letters:
            print_json({"letter": _name(letter), **letter})
    else:
        now_ms = time.time_ns() // 1_000_000
        print_table(
            ("letter", "to", "reason", "detail", "at", "message"),
            (
                (_name(a), a["to"], a["reason"], a["detail"], when(a["at_ms"], now_ms), as_json(a["message"])[:60])
                for a in letters
            ),
        )
        for count, how in zip(lost, ("were dropped: their partitions had too many", "have expired"), strict=True):
            if count:
                say(f"{count} more {how}.")
    return say_silent("dead letters", silent)


app.command(list_letters, name="list", show=False)  # as `tenure snapshots list`; it is what comes without a word


@app.command
def replay(
    *letters: str,
    to: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Deliver dead letters again.

    Parameters
    ----------
    letters
        Their names, as `tenure dead-letters` lists them.
    to
        All for jobs of this id (* stands for anything).
    dry_run
        Only print the letters that are meant.
    """
    return _exhume(letters, to, True, dry_run, connection)


@app.command
def discard(
    *letters: str,
    to: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Throw dead letters away.

    Parameters
    ----------
    letters
        Their names, as `tenure dead-letters` lists them.
    to
        All for jobs of this id (* stands for anything).
    dry_run
        Only print the letters that are meant.
    """
    return _exhume(letters, to, False, dry_run, connection)


def _exhume(names: tuple[str, ...], to: str | None, again: bool, dry_run: bool, connection: Connection) -> int:
    if not names and to is None:
        raise Usage("Say which letters: by name (see `tenure dead-letters`), or with --to (all: --to '*').")

    silent: dict[int, TenureError] = {}

    async def work(connection: Connection) -> tuple[list[dict[str, Any]], list[str], int]:
        async with connected(connection) as client:
            found = _matching(await client.directory.dead_letters(silent=silent), to)
            meant = [letter for letter in found if not names or _name(letter) in names]
            missing = [name for name in names if name not in {_name(letter) for letter in meant}]
            count = 0 if dry_run else await client.directory.exhume(meant, replay=again)
            return meant, missing, count

    meant, missing, count = _run(work, connection)
    done = "replayed" if again else "discarded"
    if connection.json:
        print_json({"letters": [_name(letter) for letter in meant], "missing": missing, done: count})
    else:
        for letter in meant if dry_run else ():
            print(_name(letter))
        for name in missing:
            say(f"{name}: there is no such letter.")
        say(f"{counted(len(meant), 'letter')} would be {done}." if dry_run else f"{counted(count, 'letter')} {done}.")
    return max(say_silent("dead letters", silent), Exit.FAILED if missing else Exit.DONE)


async def _listed(
    connection: Connection, to: str | None
) -> tuple[list[dict[str, Any]], tuple[int, int], dict[int, TenureError]]:
    """Those that are there, how many were dropped and have expired, and whose are not among these."""
    silent: dict[int, TenureError] = {}
    async with connected(connection) as client:
        letters = _matching(await client.directory.dead_letters(silent=silent), to)
        rows = await client.directory.partitions(silent=silent)
        dropped, expired = (sum(row.get(f"dead_letters_{what}", 0) for row in rows) for what in ("dropped", "expired"))
        return letters, (dropped, expired), silent


def _matching(letters: list[dict[str, Any]], to: str | None) -> list[dict[str, Any]]:
    from tenure.clients.selector import glob

    matches = glob("*" if to is None else to)
    return [letter for letter in letters if matches(letter["to"])]


def _name(letter: dict[str, Any]) -> str:
    return f"{letter['partition']}.{letter['n']}"


def _run(work: Any, *arguments: Any) -> Any:
    import trio

    return trio.run(work, *arguments)
