"""Each mutant is found: by a fast test, or by the simulation. (`python -m tests.mutants` finds out by what.)"""

import pytest

from tests.mutants import table
from tests.mutants.all import EQUIVALENT, MUTANTS, OPEN
from tests.mutants.hunt import ROOT, finds, search

FOUND = table.read()


def test_the_text_of_each_stands_once_in_the_engine() -> None:
    astray = {
        mutant.name: count
        for mutant in MUTANTS.values()
        if (count := (ROOT / "src" / "tenure" / mutant.path).read_text().count(mutant.before)) != 1
    }
    assert astray == {}, "the engine has changed there: write these mutants anew"
    assert all(mutant.before != mutant.after and mutant.breaks for mutant in MUTANTS.values())


def test_each_is_found_or_named() -> None:
    assert len(MUTANTS) >= 190
    assert FOUND.keys() | EQUIVALENT.keys() | OPEN == MUTANTS.keys()
    assert not FOUND.keys() & (EQUIVALENT.keys() | OPEN)
    assert all(EQUIVALENT.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FOUND))
def test_it_is_found(name: str) -> None:
    mutant = MUTANTS[name]
    if finds(FOUND[name], mutant):
        return
    other = search(mutant)
    assert other is not None, f"nothing finds it: {mutant.breaks}"
    print(f"{name}: {FOUND[name]} does not find it any more, {other} does: python -m tests.mutants --write {name}")
