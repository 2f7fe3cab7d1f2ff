"""Members that share a machine with nodes keep to their half of it."""

import os
import sys
from pathlib import Path

import pytest

from tenure.members import half_of_the_processors
from tenure.members.launch import release, spawn

linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets one choose processors")


@pytest.mark.parametrize(
    ("ours", "half"),
    [({0, 1}, {1}), ({0, 1, 2}, {1, 2}), ({2, 3, 5, 7}, {5, 7}), ({0}, None)],
)
@linux
def test_half_of_those_that_we_may_use(ours: set[int], half: set[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: ours)
    assert half_of_the_processors() == half


def test_where_one_can_not_choose_they_use_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert half_of_the_processors() is None


@linux
def test_what_is_started_keeps_to_them_and_the_starter_does_not(tmp_path: Path) -> None:
    ours = os.sched_getaffinity(0)
    one = frozenset([max(ours)])
    says = "import os; print(sorted(os.sched_getaffinity(0)))"
    for n, (processors, seen) in enumerate(((one, sorted(one)), (None, sorted(ours)))):
        log = tmp_path / f"log-{n}"
        process = spawn([sys.executable, "-c", says], log, processors)
        assert process.wait(30) == 0
        release(process)
        assert log.read_text().strip() == str(seen)
        assert os.sched_getaffinity(0) == ours
