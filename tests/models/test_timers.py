"""The model of timers, all of it: python tests/models/timers_model.py --rules"""

import pytest

from tests.models import timers_model


def test_timers_hold_in_every_interleaving():
    assert timers_model.verdict(set()) == "no violation in 73235 states"


@pytest.mark.parametrize("rule", timers_model.RULES)
def test_timers_need(rule):
    assert timers_model.verdict({rule}).startswith("violation")
