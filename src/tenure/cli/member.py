"""`tenure member`: run a member in the foreground, or print what an existing one must be configured with."""

import json
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tenure.cli.ends import Exit, Failed, Usage
from tenure.cli.options import USUAL_OUTPUT, Output
from tenure.cli.show import announce

if TYPE_CHECKING:
    import trio

    from tenure.members import Member, MemberSettings

__all__ = ["member"]

OPTIONS = {
    "backups": "--backups",
    "member_count": "--members-count",
    "partition_count": "--partitions",
    "port": "--port",
}
"""What settings are called here."""

HEALTH_EVERY_S = 10.0
"""Each look is a line or two in the member's log."""


def member(
    *,
    name: str = "tenure",
    host: str = "127.0.0.1",
    port: int = 5701,
    join: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    members_count: int = 1,
    backups: int = 1,
    partitions: int = 271,
    memory: int = 512,
    log_file: Path | None = None,
    java_home: Path | None = None,
    health_file: Path | None = None,
    print_config: Annotated[bool, Parameter(negative="")] = False,
    output: Output = USUAL_OUTPUT,
) -> int:
    """Run a member: a Hazelcast JVM that holds data.

    It runs until SIGTERM or SIGINT, then hands over its data and ends. Hazelcast's jar is fetched once, and
    checked; Java is the one that is there, or the one that comes with Tenure.

    Parameters
    ----------
    name
        The cluster's name. Hazelcast's open-source edition knows no other authentication.
    host
        The one address to listen at. Other than loopback: whoever reaches it may write.
    port
        The port to listen at; 0 for any free one.
    join
        Where other members listen, as host:port (several, or with commas).
    members_count
        How many members the cluster is meant to have. From three on, a minority refuses to answer.
    backups
        Copies of everything besides the first: so many members may die at once without a loss.
    partitions
        The cluster's number of partitions, the same for all members, for ever.
    memory
        The most MiB that its heap may take.
    log_file
        Where it logs; by default into the user's log folder.
    java_home
        The Java to use.
    health_file
        A file to touch every ten seconds, as long as the member answers.
    print_config
        Print the configuration, for members that you run yourself, and end.
    """
    from tenure.members import MemberSettings, member_config
    from tenure.members.settings import HEAP_MIN_MIB

    if memory < HEAP_MIN_MIB:
        raise Usage(f"--memory is {memory}: a member's heap takes at least {HEAP_MIN_MIB} MiB.")
    try:
        settings = MemberSettings(
            cluster_name=name,
            host=host,
            port=port,
            join=tuple(_address(part) for text in join or () for part in text.split(",") if part),
            member_count=members_count,
            backups=backups,
            partition_count=partitions,
            heap_initial_mib=min(96, memory),
            heap_max_mib=memory,
            log_file=log_file,
            java_home=java_home,
        )
    except ValueError as error:
        setting, _, problem = str(error).partition(" ")
        raise Usage(f"{OPTIONS.get(setting, setting)} {problem}.") from error
    if print_config:
        config = member_config(settings)
        sys.stdout.write(f"{json.dumps({'config': config})}\n" if output.json else config)
        return Exit.DONE
    import trio

    return trio.run(_run, settings, health_file, output.json)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise Usage(f"--join {text}: write host:port.")
    return host, int(port)


async def _run(settings: "MemberSettings", health_file: Path | None, as_json: bool) -> int:
    import trio

    from tenure.members import rich_progress, start_member, watch_heap
    from tenure.members.health import answers, keep_health_file
    from tenure.members.log_size import keep_log_small
    from tenure.signals import told_to_stop

    _warn_of_exposure(settings.host)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            stop, starting, quit_at_once = trio.Event(), trio.CancelScope(), False

            async def heed() -> None:
                nonlocal quit_at_once
                async for _, again in told_to_stop(signals):
                    if again:
                        quit_at_once = True
                        nursery.cancel_scope.cancel()
                    stop.set()
                    starting.cancel()

            nursery.start_soon(heed)
            progress = rich_progress() if sys.stderr.isatty() else None
            running: Member | None = None
            with starting:
                running = await start_member(settings, progress=progress)
            if running is None:
                print("tenure: stopped before it was ready.", file=sys.stderr)
            else:
                if health_file is not None:
                    is_well = partial(answers, running.address)
                    nursery.start_soon(keep_health_file, health_file, is_well, HEALTH_EVERY_S)
                nursery.start_soon(keep_log_small, running.log_file)
                nursery.start_soon(watch_heap, running, _warn)
                await _keep(running, stop, as_json)
            nursery.cancel_scope.cancel()
    if quit_at_once:
        raise Failed(
            "Told again to stop, the member was killed before it had handed over. With backups nothing is lost, if no "
            "other one goes now."
        )
    return Exit.DONE


async def _keep(running: "Member", stop: "trio.Event", as_json: bool) -> None:
    """Say that it is ready, and let it run until we are told to stop."""
    try:
        host, port = running.address
        cluster = f"{running.settings.cluster_name}@{host}:{port}"
        if as_json:
            announce(json.dumps({"event": "ready", "pid": running.pid, "cluster": cluster}))
        else:
            announce(f"Member {cluster} is ready (pid {running.pid}).")
        if await _first(stop, running.wait) is not None:
            raise running.why_ended()
        if not await running.stop():
            raise Failed(
                f"The member did not hand over within {running.settings.stop_timeout_s:g} s and was killed; "
                "with backups nothing is lost. Leave more time between stops."
            )
    finally:
        running.kill()


async def _first(stop: "trio.Event", wait: Callable[[], Awaitable[int]]) -> int | None:
    """The exit code if the process ends first, None if we are told to stop first."""
    import trio

    result: list[int] = []
    async with trio.open_nursery() as nursery:

        async def ended() -> None:
            result.append(await wait())
            nursery.cancel_scope.cancel()

        nursery.start_soon(ended)
        await stop.wait()
        nursery.cancel_scope.cancel()
    return result[0] if result else None


def _warn(what: str) -> None:
    print(f"tenure: {what}.", file=sys.stderr)


def _warn_of_exposure(host: str) -> None:
    import ipaddress

    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        print(
            f"tenure: listening at {host}: whoever reaches it and knows the cluster's name may read and write. "
            "Keep it in a network of its own.",
            file=sys.stderr,
        )
