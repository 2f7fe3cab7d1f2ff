"""Commands for snapshots, on clusters in memory."""

from pathlib import Path

import tenure
from tests.api.jobs import Counter
from tests.api.shell import Shell

PLACE = "memory:snapshot-commands"


async def _one_is_taken(client: tenure.Client) -> None:
    await client.schedule(Counter, id="a", total=1)
    await client.snapshot(PLACE)


def test_a_restore_waits_for_members_as_long_as_it_was_told(shell: Shell) -> None:
    shell.before = _one_is_taken
    shell("restore", PLACE, "--timeout", "0", code=2)
    assert "--timeout is 0" in shell.err
    shell.silences = True
    shell("restore", PLACE, "--replace", "--timeout", "3", code=3)
    assert "was not known within 3 s; nothing was changed" in shell.err
    shell.silences = False
    (restored,) = shell("restore", PLACE, "--replace", "--timeout", "3", "--json")
    assert restored["jobs"] == 1


def test_what_is_no_place_for_snapshots_is_said(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shell("snapshots", "list", str(tmp_path / "file"), code=1)
    assert "it is no folder" in shell.err
    assert shell("snapshots", "list", str(tmp_path / "nothing"), "--json") == []
    shell("snapshot", "/proc/nowhere", code=1)
    assert "can't be written: No such file or directory (/proc/nowhere" in shell.err
