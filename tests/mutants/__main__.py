"""`python -m tests.mutants [NAME …]`: hunt these mutants (all, if none is named), and say what finds each."""

import argparse
import sys
import time

from tests.mutants import table
from tests.mutants.all import EQUIVALENT, MUTANTS
from tests.mutants.hunt import SEEDS, finds, search


def main() -> int:
    """1: one was not found, and nobody says that it need not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; all, if there is none")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds each is to survive")
    parser.add_argument("--write", action="store_true", help="note in the table what finds each")
    parser.add_argument("--new", action="store_true", help="only those that the table does not know")
    parser.add_argument("--quick", action="store_true", help="look only where each is likely to be found")
    options = parser.parse_args()
    known, survivors = table.read(), []
    for name in options.names or MUTANTS:
        if options.new and (name in known or name in EQUIVALENT):
            continue
        begun_s, mutant = time.monotonic(), MUTANTS[name]
        before = known.get(name, "")
        found = before if before and finds(before, mutant) else search(mutant, seeds=options.seeds, quick=options.quick)
        if found is None and name not in EQUIVALENT:
            survivors.append(name)
        print(f"{name}: {found or 'SURVIVES'} ({time.monotonic() - begun_s:.0f} s)", flush=True)
        if options.write:
            table.note(name, found)
    print(f"{len(survivors)} survive: {', '.join(survivors) or 'none'}")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
