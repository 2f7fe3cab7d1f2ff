"""The runner of runbooks finds out what is wrong."""

import time
from pathlib import Path

import pytest

from tests.operations.runbook import Page, PageFailed, Shell, mismatch


def page(folder: Path, text: str) -> Page:
    (folder / "page.md").write_text(text)
    return Page(folder / "page.md")


def test_blocks_share_a_shell_and_print_what_they_say(tmp_path: Path) -> None:
    text = "Text\n\n```sh\nname=world\n```\n\n```python\nexit(1)\n```\n"
    text += "\n```sh\necho hello $name\n```\n\n```text\nhello …d\n```\n"
    assert [part.strip() for part in Shell(tmp_path).run(page(tmp_path, text))] == ["", "hello world"]


def test_a_command_that_fails_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(PageFailed, match=r"block 2, ended with 1(.|\n)*failed with 1: false"):
        Shell(tmp_path).run(page(tmp_path, "```sh\necho one\n```\n\n```sh\nfalse\necho two\n```\n"))


def test_a_command_that_prints_something_else_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(PageFailed, match=r"block 1, does not print 'two'"):
        Shell(tmp_path).run(page(tmp_path, "```sh\necho one\n```\n\n```text\ntwo\n```\n"))


def test_ports_are_free_ones_and_stay_the_same(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"CLUSTER": "127.0.0.1:5701"})
    printed, again = shell.run(page(tmp_path, "```sh\necho 127.0.0.1:5701 5702\n```\n\n```sh\necho $CLUSTER\n```\n"))
    first, second = printed.split()
    assert first == again.strip() == shell.here("127.0.0.1:5701") != "127.0.0.1:5701"
    assert second not in ("5702", first.rpartition(":")[2])


def test_what_is_left_running_ends_with_the_shell(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (pid,) = shell.run(page(tmp_path, "```sh\nsleep 60 & echo $!\n```\n"))
    assert Path(f"/proc/{pid.strip()}").exists()
    shell.close()
    for _ in range(100):
        state = Path(f"/proc/{pid.strip()}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("it still runs")


def test_lines_are_found_in_order() -> None:
    printed = "a  1\nb 2\nc 3\n"
    assert mismatch("a 1\nc …", printed) == ""
    assert mismatch("c 3\na 1", printed) == "a 1"
    assert mismatch("", printed) == ""
