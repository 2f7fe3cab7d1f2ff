"""The runner of runbooks finds out what is wrong."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.operations.runbook import Page, PageFailed, Shell, mismatch


def page(folder: Path, text: str) -> Page:
    (folder / "page.md").write_text(text)
    return Page(folder / "page.md")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def test_blocks_share_a_shell_and_print_what_they_say(shell: Shell, tmp_path: Path) -> None:
    text = "Text\n\n```sh\nname=world\n```\n\n```python\nexit(1)\n```\n"
    text += "\n```sh\necho hello $name\n```\n\n```text\nhello …d\n```\n"
    assert [part.strip() for part in shell.run(page(tmp_path, text))] == ["", "hello world"]


def test_a_command_that_fails_fails_the_page(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(PageFailed, match=r"block 2, ended with 1(.|\n)*failed with 1: false"):
        shell.run(page(tmp_path, "```sh\necho one\n```\n\n```sh\nfalse\necho two\n```\n"))


def test_a_command_that_prints_something_else_fails_the_page(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(PageFailed, match=r"block 1, does not print 'two'"):
        shell.run(page(tmp_path, "```sh\necho one\n```\n\n```text\ntwo\n```\n"))


def test_ports_are_free_ones_and_stay_the_same(shell: Shell, tmp_path: Path) -> None:
    shell.environment["CLUSTER"] = "127.0.0.1:5701"
    printed, again = shell.run(page(tmp_path, "```sh\necho 127.0.0.1:5701 5702\n```\n\n```sh\necho $CLUSTER\n```\n"))
    first, second = printed.split()
    assert first == again.strip() == shell.here("127.0.0.1:5701") != "127.0.0.1:5701"
    assert second not in ("5702", first.rpartition(":")[2])


LEAVES = "```sh\nsleep 61 & echo $!\nsetsid sleep 62 & echo $!\n```\n"
RUNS = """
import sys, time
from pathlib import Path
from tests.operations.runbook import Page, Shell

folder = Path(sys.argv[1])
shell = Shell(folder)
print(*shell.run(Page(folder / "page.md")), flush=True)
time.sleep(60)
"""


def check_ended(pids: Iterable[int]) -> None:
    for _ in range(500):
        if all(not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids):
            return
        time.sleep(0.02)
    pytest.fail("it still runs")


def test_what_is_left_running_ends_with_the_shell(shell: Shell, tmp_path: Path) -> None:
    other = Shell(tmp_path)
    pids = [int(pid) for pid in shell.run(page(tmp_path, LEAVES))[0].split()]
    (tmp_path / "other").mkdir()
    others = [int(pid) for pid in other.run(page(tmp_path / "other", LEAVES))[0].split()]
    assert all(map(psutil.pid_exists, pids))
    shell.close()
    check_ended(pids)
    assert all(map(psutil.pid_exists, others))
    other.close()
    check_ended(others)


def test_what_is_left_running_ends_with_tests_that_are_killed(tmp_path: Path) -> None:
    page(tmp_path, LEAVES)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    with subprocess.Popen(
        [sys.executable, "-c", RUNS, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        pids = [int(tests.stdout.readline()), int(tests.stdout.readline())]
        assert all(map(psutil.pid_exists, pids))
        tests.kill()
    check_ended(pids)


def test_lines_are_found_in_order() -> None:
    printed = "a  1\nb 2\nc 3\n"
    assert mismatch("a 1\nc …", printed) == ""
    assert mismatch("c 3\na 1", printed) == "a 1"
    assert mismatch("", printed) == ""
