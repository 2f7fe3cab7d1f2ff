"""The command that runs a member, and the lifeline that ends it with its parent.

    parent ── holds the pipe ──> sh ── exec ──> java
                                  └─ watcher: reads the pipe; end of file means the parent is gone: kill -9 java

The kernel closes the pipe however the parent ends, kill -9 included; a fork of the parent holds no lifeline. (Asking
the kernel to signal a child when its parent dies follows the *thread* that started it, and ours are short-lived.) The
watcher is a forked shell of under a megabyte. A line through the pipe ends it in peace.
"""

import os
import subprocess
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from tenure.members.archive import Archive
from tenure.members.java import Java
from tenure.members.settings import HAZELCAST_VERSION, MemberSettings

__all__ = ["jvm_command", "release", "spawn"]

_MAIN = "com.hazelcast.core.server.HazelcastMemberStarter"

_OPENED = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
"""What Hazelcast asks for; without it, it warns at each start."""

LARGE_HEAP_MIB, YOUNG_MAX_MIB = 1024, 32

_LIFELINE = 'exec 3<&0; { read -r _ <&3 || kill -9 $$; } >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'


_on_lifelines: "weakref.WeakSet[subprocess.Popen[bytes]]" = weakref.WeakSet()


def jvm_command(settings: MemberSettings, java: Java, jar: Path, config: Path, archive: Archive) -> list[str]:
    """The member's command line."""
    return [
        str(java.executable),
        f"-Xms{settings.heap_initial_mib}m",
        f"-Xmx{settings.heap_max_mib}m",
        "-XX:+UseSerialGC",  # the smallest and, on few cores, the quickest to start
        "-XX:+ExitOnOutOfMemoryError",  # a member without memory is worse than none
        "-XX:-UsePerfData",
        # The second compiler takes a core from the cluster for its first half minute. What it then gains is less than
        # that: with four million messages on two cores, members without it were still ahead.
        "-XX:TieredStopAtLevel=1",
        *_young_options(settings),
        *archive.options(),
        *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED),
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
        f"-Dhazelcast.config={config}",
        "-Dhazelcast.ignoreXxeProtectionFailures=true",  # smaller Javas have no XML parser that offers it
        # One, not none: threads that read from the network must not answer. When two have something for a connection
        # and the first is a reader, the other's message is left lying until the next one, up to a second.
        "-Dhazelcast.operation.response.thread.count=1",
        # Threads that wake each other for every message cost more, on few cores, than they can do side by side.
        f"-Dhazelcast.io.thread.count={min(3, max(1, _processor_count(settings) // 2))}",
        *settings.jvm_options,
        "-cp",
        str(jar),
        _MAIN,
    ]


def _young_options(settings: MemberSettings) -> list[str]:
    """By itself the young generation takes a third of the heap. While a large one fills, each of its collections moves
    tens of megabytes into memory that nobody has touched, and the member stands still for a second."""
    return [f"-XX:MaxNewSize={YOUNG_MAX_MIB}m"] if settings.heap_max_mib >= LARGE_HEAP_MIB else []


def _processor_count(settings: MemberSettings) -> int:
    if settings.processors is not None:
        return len(settings.processors)
    return os.cpu_count() or 1


@contextmanager
def _confined(processors: frozenset[int] | None) -> Iterator[None]:
    """What this thread starts meanwhile may use these processors alone."""
    if processors is None:
        yield
        return
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


def spawn(command: list[str], log_file: Path, processors: frozenset[int] | None = None) -> "subprocess.Popen[bytes]":
    """Start `command` on a lifeline: its process is the returned one, and ends with this process at the latest."""
    with log_file.open("ab") as log, _confined(processors):
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIFELINE, f"hazelcast-{HAZELCAST_VERSION}", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops its member in its own time
        )
    _on_lifelines.add(process)
    return process


def _environment() -> dict[str, str]:
    """Ours, but for what Hazelcast would take above the configuration that we write: another cluster's name or port."""
    foreign = sorted(name for name in os.environ if name.upper().startswith("HZ_"))
    if foreign:
        structlog.get_logger("tenure").warning(f"members do not heed these variables: {', '.join(foreign)}")
    return {name: value for name, value in os.environ.items() if name not in foreign}


def _let_go_of_all() -> None:
    """In a fork of the parent, which would keep the lifelines open for as long as it lives."""
    for process in list(_on_lifelines):
        if process.stdin is not None and not process.stdin.closed:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, process.stdin.fileno(), inheritable=False)
            os.close(nothing)


os.register_at_fork(after_in_child=_let_go_of_all)


def release(process: "subprocess.Popen[bytes]") -> None:
    """The process has ended: let the watcher go, before its number can belong to another."""
    assert process.stdin is not None
    if process.stdin.closed:
        return
    try:
        process.stdin.write(b"\n")
        process.stdin.close()
    except OSError:
        pass  # the watcher is gone already
