"""Fencing tokens: they grow, and fit into what databases and messages hold."""

import itertools

import pytest

from tenure.scheduler.fences import FIRST_FORM, INCARNATION_MAX, Fences

SIGNED_MAX = 2**63 - 1


def filled(incarnation: int, epoch: int) -> tuple[int, int]:
    """The first token of a tenure, and one behind the last, after a group of turns that ran past the limit."""
    fences = Fences(incarnation, epoch)
    first = fences.next()
    fences._count = fences._count_max
    assert not fences.are_used_up()
    fences.next()
    assert fences.are_used_up()
    fences._count = 2 * fences._count_max - 2
    return first, fences.next()


@pytest.mark.parametrize("epochs", [(1, 2, 3), (2**22 - 3, 2**22 - 2, 2**22 - 1)])
def test_they_grow_over_tenures_epochs_and_incarnations(epochs: tuple[int, ...]) -> None:
    incarnations = (1, 2, FIRST_FORM - 1, FIRST_FORM, FIRST_FORM + 1, 127, 128, 129, INCARNATION_MAX)
    tokens = [token for pair in itertools.product(incarnations, epochs) for token in filled(*pair)]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] <= SIGNED_MAX


def test_those_of_few_incarnations_are_as_they_were() -> None:
    assert Fences(3, 5).next() == 3 << 56 | 5 << 32 | 1
