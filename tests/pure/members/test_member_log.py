"""Where a member logs to."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tenure.members import MemberDidNotStart, MemberSettings, start_member


@pytest.mark.parametrize("place", ["", "file/member.log"])
async def test_a_log_that_can_not_be_opened_is_named(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetched(_progress: object) -> Path:
        return tmp_path / "hazelcast.jar"

    monkeypatch.setattr("tenure.members.member.find_java", lambda _home: SimpleNamespace(executable="java"))
    monkeypatch.setattr("tenure.members.member.jar_fetched", fetched)
    (tmp_path / "file").touch()
    log_file = tmp_path / place
    with pytest.raises(MemberDidNotStart) as told:
        await start_member(MemberSettings(log_file=log_file))
    assert f"can't log to {log_file}" in str(told.value)
    assert "--log-file" in str(told.value)
