"""Members as child processes: started, ready when they are, paused, killed, and gone when we are.

One member is one process of its own. Members that start together are started one after another: two at
the same moment wait seconds for each other.
"""

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import platformdirs
import trio

from tenure.members.archive import Archive
from tenure.members.config import member_config
from tenure.members.errors import MemberDidNotStart, MemberError, StoodAlone, TooLittleMemory
from tenure.members.jar import Progress, cache_dir, jar_fetched
from tenure.members.java import Java, find_java
from tenure.members.launch import jvm_command, release, spawn
from tenure.members.leftovers import marked, remove_leftovers
from tenure.members.logs import Migrations, Standing, diagnose, diagnose_end, not_to_be_had, read_standing
from tenure.members.settings import Address, MemberSettings, memory_limit_mib, memory_total_mib

__all__ = ["Member", "free_port", "logs_folder", "open_member", "open_members", "prepare", "settle", "start_member"]

CONFIG = "tenure-member-of-"
_POLL_S = 0.02
_LAST_WORDS_BYTES = 64 * 1024
"""So much of a member's log, from its end, may be about its end."""

_IN_PEACE = 0, 128 + signal.SIGTERM
"""How Java exits when it was asked to and has done all that it had to."""

_CALM_S = 2.0
"""How long after a change of members migrations may still begin; after a graceful leave there are none."""

_JOIN_GRACE_S = 5.0
"""How long a member that sees nobody may still find the others that do listen."""


class Member:
    """A running member. `stop` it, or `kill` it; it never outlives the process that started it."""

    def __init__(
        self,
        settings: MemberSettings,
        process: "subprocess.Popen[bytes]",
        log_file: Path,
        config: Path,
        archive: Archive,
    ) -> None:
        self.settings = settings
        self.log_file = log_file
        self._process = process
        self._config = config
        self._archive = archive

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> Address:
        return self.settings.address

    @property
    def id(self) -> str:
        """What the cluster calls it, as in `Ownership`. It changes when the member is merged after a split."""
        found = self.standing().id
        assert found is not None, "a member that has started has joined a cluster, if only its own"
        return found

    @property
    def running(self) -> bool:
        if self._process.poll() is None:
            return True
        self._tidy()
        return False

    def standing(self) -> Standing:
        """How far it has come, and how many members it sees, by its log."""
        return read_standing(self.log_file.read_bytes())

    def kill(self) -> None:
        """End it at once, as a crash would (kill -9)."""
        if self.running:
            self._process.kill()
            self._process.wait()
            self._tidy()
            self._archive.discard()

    def pause(self) -> None:
        """Freeze it where it stands (SIGSTOP): its connections stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        # The last of its threads stops a little later, and could still answer.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def unpause(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> bool:
        """Let it hand over its partitions and go. False: it took too long, and was killed."""
        if not self.running:
            return True
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            with trio.move_on_after(self.settings.stop_timeout_s) as waiting:
                await self.wait()
        finally:
            self.kill()
        if self._process.returncode in _IN_PEACE:
            self._archive.keep()
        return not waiting.cancelled_caught

    async def wait(self) -> int:
        """Return when its process has ended, with its exit code."""
        while self.running:  # noqa: ASYNC110  # a process sets no event
            await trio.sleep(_POLL_S)
        return self._process.returncode

    def why_ended(self) -> MemberError:
        """What is to be said when it has ended without being told to."""
        log = self.log_file.read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace")
        return diagnose_end(log, self.settings, self.log_file, self._process.returncode)

    def _tidy(self) -> None:
        release(self._process)
        self._config.unlink(missing_ok=True)


@asynccontextmanager
async def open_member(settings: MemberSettings, *, progress: Progress | None = None) -> AsyncIterator[Member]:
    """A member that is up while this is open, and is stopped with its partitions handed over."""
    member = await start_member(settings, progress=progress)
    try:
        yield member
        await member.stop()
    finally:
        member.kill()


@asynccontextmanager
async def open_members(
    settings: MemberSettings, *, ports: Sequence[int] = (), progress: Progress | None = None
) -> AsyncIterator[list[Member]]:
    """As many members of one cluster as `settings.member_count`, all on this machine; killed at the end, data and all.

    They listen at `ports`, by default at free ones.
    """
    await prepare(settings, progress=progress)
    ports = ports or [free_port(settings.host) for _ in range(settings.member_count)]
    addresses = tuple((settings.host, port) for port in ports)
    async with AsyncExitStack() as stack:
        members: list[Member] = []
        for port in ports:
            member = await start_member(replace(settings, port=port, join=addresses), progress=progress)
            stack.callback(member.kill)
            members.append(member)
        yield members


async def settle(members: Sequence[Member], *, timeout_s: float = 30.0) -> None:
    """Return when the running ones of `members`, oldest first, have all partitions and backups in place again.

    They must be one cluster, and somebody must have used it: before that there are no partitions to place.
    """
    calm_since = None
    with trio.move_on_after(timeout_s):
        while True:
            running = [member for member in members if member.running]
            standing = running[0].standing()
            if standing.members_seen == len(running):
                if standing.migrations is Migrations.DONE:
                    return
                calm_since = calm_since or trio.current_time()
                if standing.migrations is Migrations.CHANGED and trio.current_time() - calm_since > _CALM_S:
                    return
            await trio.sleep(_POLL_S)
    running = [member for member in members if member.running]
    raise MemberDidNotStart(
        f"After {timeout_s:g} s partitions were still on the move between {len(running)} members.",
        f"The oldest member's log is {running[0].log_file}.",
    )


async def prepare(settings: MemberSettings | None = None, *, progress: Progress | None = None) -> tuple[Java, Path]:
    """Do once what makes later starts quick: fetch the jar, and archive the classes that a member loads.

    Takes some seconds the first time. Starting a member does not need it.
    """
    settings = settings or MemberSettings()
    java = await trio.to_thread.run_sync(find_java, settings.java_home, abandon_on_cancel=True)
    jar = await jar_fetched(progress)
    if Archive(cache_dir(), java, jar).wanted:
        trial = replace(settings, cluster_name=f"archive-{os.urandom(4).hex()}", port=0, join=(), log_file=None)
        async with open_member(trial) as member:
            pass
        member.log_file.unlink(missing_ok=True)
    return java, jar


async def start_member(settings: MemberSettings, *, progress: Progress | None = None) -> Member:
    """Start a member and return when it answers and has joined the others. Whoever calls it must `stop` or `kill` it.

    Raises a `MemberError` that says what to do if it does not come up.
    """
    java = await trio.to_thread.run_sync(find_java, settings.java_home, abandon_on_cancel=True)
    jar = await jar_fetched(progress)
    settings = _checked(settings)
    log_file = settings.log_file or logs_folder() / f"member-{settings.port}.log"
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log_file.open("wb").close()
    except OSError as error:
        what = f"The member can't log to {log_file}: {error.strerror}."
        raise MemberDidNotStart(what, "Name a file that can be written (--log-file).") from error
    archive = Archive(cache_dir(), java, jar)
    config = _write_config(settings)
    command = jvm_command(settings, java, jar, config, archive)
    try:
        member = Member(settings, spawn(command, log_file, settings.processors), log_file, config, archive)
    except OSError as error:
        config.unlink()
        what = f"{java.executable} could not be run: {error}."
        raise MemberDidNotStart(what, "Set JAVA_HOME to a Java that can.") from error
    try:
        await _ready(member)
    except BaseException:
        member.kill()
        raise
    return member


def logs_folder() -> Path:
    """Where members log to for which no file is named."""
    return platformdirs.user_log_path("tenure", appauthor=False)


async def _ready(member: Member) -> None:
    settings = member.settings
    address = f"{settings.host}:{settings.port}"
    with trio.move_on_after(settings.start_timeout_s):
        while not member.standing().started:
            if not member.running:
                what = f"The member at {address} ended while it started."
                raise diagnose(member.log_file.read_text(errors="replace"), settings, member.log_file, what)
            await trio.sleep(_POLL_S)
        await _joined(member)
        return
    what = f"The member at {address} was not up after {settings.start_timeout_s:g} s."
    raise diagnose(member.log_file.read_text(errors="replace"), settings, member.log_file, what)


async def _joined(member: Member) -> None:
    """A member that can't join forms a cluster of its own, and says so only in its log."""
    others = [address for address in member.settings.join if address != member.address]
    with trio.move_on_after(_JOIN_GRACE_S):
        while member.standing().members_seen < 2:
            if not any([await _listens(address) for address in others]):
                return
            await trio.sleep(0.2)
        return
    log = member.log_file.read_text(errors="replace")
    here, at = (", ".join(f"{host}:{port}" for host, port in some) for some in ([member.address], others))
    error: MemberError = diagnose(log, member.settings, member.log_file, "")
    if isinstance(error, MemberDidNotStart):
        error = StoodAlone(
            f"The member at {here} formed a cluster of its own, although others listen at {at}.",
            f"Compare cluster names ({member.settings.cluster_name!r} here), versions and partition counts; "
            f"its log is {member.log_file}.",
        )
    raise error


async def _listens(address: Address) -> bool:
    with trio.move_on_after(1):
        try:
            stream = await trio.open_tcp_stream(*address)
        except OSError:
            return False
        await stream.aclose()
        return True
    return True  # frozen, but there


def _checked(settings: MemberSettings) -> MemberSettings:
    """Settings that can work here, with a port; what can be told before Java runs is told in a better sentence."""
    for has, total_mib in ("this machine has", memory_total_mib()), ("this container may take", memory_limit_mib()):
        if total_mib is not None and settings.heap_max_mib > total_mib:
            raise TooLittleMemory(
                f"The member may take a heap of {settings.heap_max_mib} MiB, and {has} {total_mib} MiB in all.",
                "Give it a smaller heap (--memory), or more to take it from.",
            )
    with socket.socket() as probe:
        # Of a port whose last connections are still winding down, Java takes hold, too.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(settings.port != 0))
        try:
            probe.bind(settings.address)
        except OSError as error:
            raise not_to_be_had(settings, error) from error
        return replace(settings, port=probe.getsockname()[1])


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens at, nor did in the last moments."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _write_config(settings: MemberSettings) -> Path:
    remove_leftovers(Path(tempfile.gettempdir()), CONFIG, ".yaml")  # a parent that was killed removes none
    descriptor, name = tempfile.mkstemp(prefix=marked(CONFIG), suffix=".yaml")
    with os.fdopen(descriptor, "w") as file:
        file.write(member_config(settings))
    return Path(name)
