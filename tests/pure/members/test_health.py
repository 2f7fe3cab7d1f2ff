"""Files that tell probes how a process is."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tenure.members.health import answers, keep_health_file

Serve = Callable[[trio.SocketStream], Awaitable[None]]


async def listening(nursery: trio.Nursery, serve: Serve) -> tuple[str, int]:
    (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    host, port = listener.socket.getsockname()
    return host, port


async def greet(stream: trio.SocketStream) -> None:
    await stream.send_all(await stream.receive_some(3))


async def stay_silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def say_something_else(stream: trio.SocketStream) -> None:
    await stream.send_all(b"SSH")


async def test_only_a_member_that_greets_is_well(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        assert not await answers(await listening(nursery, say_something_else))
        assert await answers(await listening(nursery, greet))
        silent = await listening(nursery, stay_silent)
        before_s = trio.current_time()
        assert not await answers(silent)
        assert trio.current_time() - before_s == 5
        nursery.cancel_scope.cancel()


async def test_where_nobody_listens_nobody_is_well() -> None:
    with trio.socket.socket() as free:
        await free.bind(("127.0.0.1", 0))
        assert not await answers(free.getsockname())


async def test_the_file_is_as_young_as_the_process_is_well(tmp_path: Path, autojump_clock: Any) -> None:
    file, well, looks = tmp_path / "run" / "health", True, 0

    async def is_well() -> bool:
        nonlocal looks
        looks += 1
        return well

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_health_file, file, is_well, 2.0)
        await trio.sleep(1)
        assert file.exists()
        file.unlink()
        await trio.sleep(2)
        assert file.exists()
        file.unlink()
        well = False
        await trio.sleep(10)
        assert looks > 5
        assert not file.exists()
        well = True
        await trio.sleep(2)
        assert file.exists()
        nursery.cancel_scope.cancel()
    assert not file.exists()


async def test_a_file_that_can_not_be_touched_ends_nothing(
    tmp_path: Path, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("no folder")
    file = tmp_path / "run" / "health"

    async def is_well() -> bool:
        return True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_health_file, file, is_well, 2.0)
        await trio.sleep(11)
        assert [record.getMessage() for record in caplog.records] == [
            f"the health file {file} can't be touched, and grows old: File exists"
        ]
        (tmp_path / "run").unlink()
        await trio.sleep(2)
        assert file.exists()
        nursery.cancel_scope.cancel()
