"""A member whose heap can't be had is not started."""

from pathlib import Path

import pytest

from tenure.members import MemberSettings, TooLittleMemory
from tenure.members.member import _checked
from tenure.members.settings import memory_limit_mib

SETTINGS = MemberSettings(port=0, heap_max_mib=512)


@pytest.mark.parametrize(
    ("machine_mib", "container_mib", "says"),
    [
        (400, None, "512 MiB, and this machine has 400 MiB"),
        (4000, 256, "512 MiB, and this container may take 256 MiB"),
        (None, 256, "this container may take 256 MiB"),
        (400, 2**43, "this machine has 400 MiB"),
        (4000, 512, None),
        (None, None, None),
    ],
)
def test_a_heap_that_is_larger_than_what_there_is(
    machine_mib: int | None, container_mib: int | None, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.members.member.memory_total_mib", lambda: machine_mib)
    monkeypatch.setattr("tenure.members.member.memory_limit_mib", lambda: container_mib)
    if says is None:
        assert _checked(SETTINGS).port
    else:
        with pytest.raises(TooLittleMemory, match=f"{says} in all.*--memory"):
            _checked(SETTINGS)


@pytest.mark.parametrize(
    ("files", "limit_mib"),
    [
        ({}, None),
        ({"memory.max": "max\n"}, None),
        ({"memory.max": "268435456\n"}, 256),
        ({"memory.limit_in_bytes": "134217728\n"}, 128),
    ],
)
def test_what_a_container_may_take(
    files: dict[str, str], limit_mib: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tenure.members.settings._LIMITS", (tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes")
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert memory_limit_mib() == limit_mib
