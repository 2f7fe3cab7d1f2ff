"""For `tenure simulate` and `tenure bench`, which read their own arguments: wrong ones are told as by all commands."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

__all__ = ["Parser", "chosen"]


class Parser(argparse.ArgumentParser):
    """Says wrong usage in a sentence, or with --json in an object; both on standard error. Raises `SystemExit`."""

    _as_json = False

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """These, or the program's own."""
        given = sys.argv[1:] if arguments is None else arguments
        self._as_json = "--json" in given
        return self.parse_args(given)

    def error(self, message: str) -> NoReturn:
        # Imported late: what is measured in a process of its own needs nothing of the command line.
        from tenure.cli.ends import Usage, explain

        raise SystemExit(explain(Usage(f"{message}. See `{self.prog} --help`."), as_json=self._as_json))


def chosen(parser: Parser, only: str | None, known: Iterable[str]) -> list[str]:
    """What --only names, or all. Raises `SystemExit`."""
    there = list(known)
    names = only.split(",") if only else there
    if unknown := [name for name in names if name not in there]:
        parser.error(f"there is no {unknown[0]!r}, only {', '.join(there)}")
    return names
