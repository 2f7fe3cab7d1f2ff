"""Reading a member's log."""

import errno
import re
import signal
import socket
from pathlib import Path

import pytest
import trio

from tenure.members import (
    MemberDidNotStart,
    MemberError,
    MemberSettings,
    PortTaken,
    SettingsMismatch,
    TooLittleMemory,
    WrongVersion,
)
from tenure.members.log_size import keep_log_small
from tenure.members.logs import Migrations, diagnose, diagnose_end, not_to_be_had, read_standing

PREFIX = "INFO: [127.0.0.1]:5701 [tenure] [5.7.0] "
JOINED = "Members {size:2, ver:2} [\n\tMember [127.0.0.1]:5701 - 11aa this\n\tMember [127.0.0.1]:5702 - 22bb\n]\n"
STARTED = PREFIX + "[127.0.0.1]:5701 is STARTED\n"
DEALT = PREFIX + "Initializing cluster partition table arrangement...\n"
MOVING = PREFIX + "Repartitioning cluster data. Migration tasks count: 271\n"
MOVED = PREFIX + "All migration tasks have been completed. (repartitionTime=…)\n"
FINE = PREFIX + "Partition balance is ok, no need to repartition.\n"


def test_a_member_is_up_when_it_says_so() -> None:
    assert not read_standing(b"").started
    assert not read_standing((PREFIX + "[127.0.0.1]:5701 is STARTING\n").encode()).started
    standing = read_standing((JOINED + STARTED).encode())
    assert (standing.started, standing.members_seen, standing.id) == (True, 2, "11aa")


@pytest.mark.parametrize(
    ("log", "migrations"),
    [
        ("", Migrations.UNKNOWN),
        (JOINED, Migrations.UNKNOWN),
        (JOINED + DEALT, Migrations.DONE),
        (JOINED + DEALT + JOINED, Migrations.CHANGED),
        (JOINED + DEALT + JOINED + MOVING, Migrations.MOVING),
        (JOINED + DEALT + MOVING + JOINED, Migrations.MOVING),
        (JOINED + DEALT + JOINED + MOVING + MOVED, Migrations.DONE),
        (JOINED + DEALT + JOINED + FINE, Migrations.DONE),
    ],
)
def test_it_tells_whether_partitions_are_in_place(log: str, migrations: Migrations) -> None:
    assert read_standing(log.encode()).migrations is migrations


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("Error occurred during initialization\nCould not reserve enough space for heap", TooLittleMemory, "512 MiB"),
        ("SEVERE: Joining node's version 5.7.0 is not compatible with cluster version 5.5", WrongVersion, "snapshot"),
        ("SEVERE: A Configuration mismatch was detected: expected: 271, found: 17 Node is going to shutdown now!",
         SettingsMismatch, "expected: 271, found: 17"),
        ("SEVERE: something new", MemberDidNotStart, "something new"),
    ],
)  # fmt: skip
def test_what_went_wrong_is_named(line: str, error: type[MemberError], says: str) -> None:
    found = diagnose(f"INFO: much else\n{line}\n", MemberSettings(), Path("member.log"), "It ended.")
    assert type(found) is error
    assert says in str(found)
    assert found.what
    assert found.next_step


FULL = "Terminating due to java.lang.OutOfMemoryError: Java heap space"


@pytest.mark.parametrize(
    ("line", "code", "error", "says"),
    [
        (FULL, 3, TooLittleMemory, r"heap of the member at 127.0.0.1:5701 is full \(512 MiB\).*more .*--memory"),
        ("java.lang.OutOfMemoryError: unable to create native thread", 1, TooLittleMemory, "too little memory.*Free"),
        ("WARNING: a port of another is already in use", 1, MemberError, r"by itself \(exit code 1\).*in use"),
        ("INFO: the last words", -signal.SIGKILL, MemberError, r"killed \(SIGKILL\).*dmesg.*member.log.*last words"),
        ("INFO: the last words", -signal.SIGABRT, MemberError, r"killed \(SIGABRT\)\. .*last words"),
    ],
)
def test_why_a_member_ended_is_named(line: str, code: int, error: type[MemberError], says: str) -> None:
    found = diagnose_end(f"INFO: much else\n{line}\n", MemberSettings(), Path("member.log"), code)
    assert type(found) is error
    assert re.search(says, str(found), re.DOTALL)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (socket.gaierror(-2, "Name or service not known"), MemberDidNotStart, "'nonsense' is no address, and no host"),
        (OSError(errno.EADDRINUSE, "in use"), PortTaken, "Port 5701 of nonsense is taken"),
        (OSError(errno.EADDRNOTAVAIL, "not here"), MemberDidNotStart, "no interface with the address nonsense"),
        (PermissionError(errno.EACCES, "Permission denied"), MemberDidNotStart, "can't be had: Permission denied"),
    ],
)
def test_why_an_address_can_not_be_had(error: OSError, kind: type[MemberError], sentence: str) -> None:
    found = not_to_be_had(MemberSettings(host="nonsense"), error)
    assert type(found) is kind
    assert sentence in found.what
    assert found.next_step


async def test_a_log_is_kept_small(tmp_path: Path) -> None:
    log = tmp_path / "member.log"
    with log.open("ab", buffering=0) as file:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_log_small, log, 100, 0.001)
            file.write(b"a" * 101)
            with trio.fail_after(5):
                while log.stat().st_size:  # noqa: ASYNC110  # nobody tells
                    await trio.sleep(0.001)
            file.write(b"then")
            nursery.cancel_scope.cancel()
    assert log.read_bytes() == b"then"
    assert (tmp_path / "member.log.1").read_bytes() == b"a" * 101
