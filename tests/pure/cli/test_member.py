"""`tenure member`, where that takes no member."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from tenure.cli import main
from tenure.cli.ends import Exit, Failed
from tenure.cli.member import _run
from tenure.members import MemberSettings
from tenure.signals import SAME_SIGNAL_S


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


class Leaving:
    """A member that takes its time to hand over."""

    def __init__(self) -> None:
        self.address, self.pid, self.killed = ("127.0.0.1", 5701), 1, trio.Event()
        self.settings = SimpleNamespace(cluster_name="tenure", stop_timeout_s=60.0, heap_max_mib=512)
        self.told, self.handed_over, self.log_file = trio.Event(), trio.Event(), Path("no log")

    async def wait(self) -> int:
        await trio.sleep_forever()
        raise AssertionError

    async def stop(self) -> bool:
        self.told.set()
        await self.handed_over.wait()
        return True

    def kill(self) -> None:
        self.killed.set()


@pytest.mark.parametrize("again", [False, True])
async def test_a_signal_that_comes_twice_at_once_is_one_and_a_later_one_is_told(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Leaving()

    async def start(settings: MemberSettings, **options: object) -> Leaving:
        return member

    async def signal_it() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await member.told.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep(0.05)
        assert not member.killed.is_set()
        if again:
            await trio.sleep(SAME_SIGNAL_S)
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            member.handed_over.set()

    monkeypatch.setattr("tenure.members.start_member", start)

    async def run_it() -> None:
        if not again:
            assert await _run(MemberSettings(port=0), None, False) == Exit.DONE
            return
        with pytest.raises(Failed, match="killed before it had handed over"):
            await _run(MemberSettings(port=0), None, False)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_it)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(signal_it)


@pytest.mark.parametrize(
    ("option", "value"), [("--backups", "9"), ("--members-count", "0"), ("--partitions", "0"), ("--port", "70000")]
)
def test_what_can_not_be_is_named_as_it_was_given(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["member", option, value]) == Exit.USAGE
    assert f"{option} is {value}: " in capsys.readouterr().err
