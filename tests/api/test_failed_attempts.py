"""A handler's exception is seen while one develops: each attempt that fails is logged with its traceback, and
`describe` prints it in lines; never so much that a log drowns in it."""

import textwrap
from typing import Any

import pytest
import trio

import tenure
from tenure.scheduler.failure_log import AT_ONCE_MAX, EVERY_S, FailureLog
from tenure.scheduler.jobtype import JobType, Registry, registry
from tenure.testing import Cluster
from tests.api.test_formats import backend_of


class Negative(tenure.Job):
    def on_message(self, ctx: tenure.Context, message: int) -> None:
        raise ValueError(f"negative: {'x' * message}")


RETRY = tenure.Retry(attempts_max=3, first_delay_s=0.1)
TYPES = Registry(*registry, JobType("negative", Negative, retry=RETRY))


@pytest.mark.tenure(nodes=1, app=TYPES)
async def test_each_failed_attempt_is_logged_once_with_its_traceback(cluster: Cluster, client: tenure.Client) -> None:
    logged: list[tuple[str, str]] = []
    [running] = backend_of(cluster)._nodes.values()
    running.node.host.log_failure = lambda text, traceback: logged.append((text, traceback))
    await client.schedule("negative", id="a")
    await client.publish("a", 3)
    await trio.sleep(5)
    assert len(logged) == 3
    for n, (text, traceback) in enumerate(logged, 1):
        assert text.startswith(f"job 'a' (negative): attempt {n} of 3 at a/1/")
        assert text.endswith("ValueError: negative: xxx")
        assert ("tried again in 0.1 s" in text) == (n == 1)
        assert 'raise ValueError(f"negative' in traceback
    await client.schedule("negative", id="b")
    await client.publish("b", 1_000_000)
    await trio.sleep(5)
    assert len(logged) == 6
    assert all(len(text) < 3000 and len(traceback) <= 8000 for text, traceback in logged)


async def test_a_hot_loop_of_failures_does_not_drown_the_log(autojump_clock: trio.testing.MockClock) -> None:
    logged: list[str] = []
    log = FailureLog(lambda text, traceback: logged.append(text))
    for n in range(10_000):
        log.tell(f"{n}", "")
    assert logged == [str(n) for n in range(AT_ONCE_MAX)]
    await trio.sleep(EVERY_S)
    log.tell("next", "")
    log.tell("too soon", "")
    assert logged[AT_ONCE_MAX:] == [
        f"next ({10_000 - AT_ONCE_MAX} more failed attempts before this one were not logged: too many at once)"
    ]
    await trio.sleep(EVERY_S * 100)
    for n in range(100):
        log.tell(f"{n}", "")
    assert len(logged) == 2 * AT_ONCE_MAX + 1


def _described(failure: Any) -> Any:
    return {"id": "a", "status": "failed", "failure": failure}


async def test_describe_prints_the_traceback_in_lines_for_people(
    in_virtual_time: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tenure.cli import one
    from tenure.cli.options import Connection

    traceback = 'Traceback (most recent call last):\n  File "app.py", line 3\nValueError: negative\n'
    monkeypatch.setattr(one, "_run", lambda run: _described({"error": "ValueError: negative", "traceback": traceback}))
    one.describe("a", connection=Connection(cluster="x@y:1"))
    said = capsys.readouterr().out
    assert said.endswith(textwrap.indent(traceback, 4 * " "))
    assert "\\n" not in said
    one.describe("a", connection=Connection(cluster="x@y:1", json=True))
    assert "\\n" in capsys.readouterr().out
    monkeypatch.setattr(one, "_run", lambda run: _described(None))
    one.describe("a", connection=Connection(cluster="x@y:1"))
    assert "Traceback" not in capsys.readouterr().out
