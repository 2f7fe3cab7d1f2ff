"""What a command names must be there; a selector may find nothing."""

import pytest

import tenure
from tests.api.jobs import Counter
from tests.api.shell import Shell


async def _a_job(client: tenure.Client) -> None:
    await client.schedule(Counter, id="there")


@pytest.mark.parametrize("command", ["pause", "resume", "cancel", "retry"])
def test_jobs(shell: Shell, command: str) -> None:
    shell.before = _a_job
    for wrong in (["nobody"], ['"nobody"'], ["nobody", "--dry-run"]):
        shell(command, *wrong, code=1)
        assert "there is no job 'nobody'. See `tenure jobs`" in shell.err
    for nothing in ("id=nobody", "nobody*", "state=failed", "nobody or nothing"):
        shell(command, nothing)
        assert shell.err.startswith("0 jobs ")
        assert shell(command, nothing, "--json") == []
    shell(command, "there")
    assert shell.err.startswith("0 jobs " if command == "retry" else "1 job ")


@pytest.mark.parametrize("command", [["drain"], ["drain", "--undo"], ["stop"], ["stop", "--dry-run"]])
def test_nodes(shell: Shell, command: list[str]) -> None:
    shell(*command, "nobody", code=1)
    assert "No node is called 'nobody'" in shell.err
    shell(*command, "name=web-*")
    assert shell.err.startswith("0 nodes ")


def test_applications(shell: Shell) -> None:
    shell.before = _a_job
    for command in (["undeploy"], ["undeploy", "--now"], ["undeploy", "--dry-run"], ["wait"]):
        shell(*command, "nothing", code=1)
        assert "No job belongs to application 'nothing'" in shell.err
    (quiet,) = shell("wait", "default", "--json")
    assert (quiet["application"], quiet["jobs"]) == ("default", 1)
    shell("undeploy", "default")
    assert "default is undeployed: 1 job removed." in shell.err
