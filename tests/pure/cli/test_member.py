"""`tenure member`, where that takes no member."""

import os
import signal

import pytest
import trio

from tenure.cli import main
from tenure.cli.ends import Exit
from tenure.cli.member import _run
from tenure.members import MemberSettings


async def test_the_first_signal_is_heeded_while_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    starting = trio.Event()

    async def start_slowly(settings: MemberSettings, **options: object) -> None:
        starting.set()
        await trio.sleep_forever()

    monkeypatch.setattr("tenure.members.start_member", start_slowly)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_run, MemberSettings(port=0), None, False)
            await starting.wait()
            os.kill(os.getpid(), signal.SIGTERM)
    assert "stopped before it was ready" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"), [("--backups", "9"), ("--members-count", "0"), ("--partitions", "0"), ("--port", "70000")]
)
def test_what_can_not_be_is_named_as_it_was_given(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["member", option, value]) == Exit.USAGE
    assert f"{option} is {value}: " in capsys.readouterr().err
