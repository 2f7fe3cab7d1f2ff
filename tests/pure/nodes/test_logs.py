"""A node's log that can't be written."""

import errno
import io

import pytest
import structlog

from tenure.nodes.logs import set_up_logs

pytestmark = pytest.mark.usefixtures("logs_as_they_were")


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


class Closed(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")




@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("stream", [Full(), Closed()])
def test_a_log_that_can_not_be_written_fails_nobody(stream: io.StringIO, json: bool) -> None:
    set_up_logs(json=json, stream=stream)
    structlog.get_logger("tenure").warning("a job has failed", job="a")


def test_what_can_be_written_is_there_at_once() -> None:
    stream = io.StringIO()
    set_up_logs(json=True, stream=stream)
    structlog.get_logger("tenure").warning("a job has failed", job="a")
    assert '"job": "a"' in stream.getvalue()
