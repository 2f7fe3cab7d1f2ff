"""docs/commands.md and docs/settings.md say what the commands and settings are: all of them, and nothing else."""

import ast
import re
from pathlib import Path

import pytest

from tenure.cli import main
from tenure.cli.ends import Exit
from tenure.cli.publish import parse_line
from tenure.cli.reference import PAGES, SETTINGS, generated
from tenure.cli.reference import main as write_again
from tenure.clients.selector import JOBS, NODES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text()
BY_HAND = PAGE.removesuffix(generated(PAGE))
AGAIN = "write them again: python -m tenure.cli.reference docs"


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_as_they_would_be_now(name: str) -> None:
    assert generated((ROOT / "docs" / name).read_text()) == PAGES[name](), AGAIN


def test_they_are_written_again_below_what_was_written_by_hand(tmp_path: Path) -> None:
    for name in PAGES:
        page = (ROOT / "docs" / name).read_text()
        (tmp_path / name).write_text(page.removesuffix(generated(page)) + "\nwhat is no longer so\n")
    assert write_again([str(tmp_path)]) == 0
    for name in PAGES:
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text()


def test_what_takes_several_lines_is_told_to_its_end() -> None:
    told = {line for line in generated(PAGE).splitlines() if line.startswith("* `--spawn")}
    assert len(told) > 2
    assert [line for line in told if not re.search(r"No shell sees it\.", line)] == []


def test_every_setting_says_what_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE)
    assert len(rows) > 40
    assert [name for name, default, what in rows if not default or not what.strip().endswith(".")] == []
    assert all(f"## {name}\n" in (ROOT / "docs" / "settings.md").read_text() for _, name in SETTINGS)


@pytest.mark.parametrize("command", ["simulate", "bench", "bench spark", "bench operations"])
def test_proofs_have_the_options_that_the_page_says(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    real = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    [told] = re.findall(rf"^(`tenure {command}` .*?)(?=^`tenure|^#)", BY_HAND, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`(--[a-z][a-z-]+)", told)) == real


def test_the_options_of_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--install-completion", "--help"]) == 0
    for option in set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)):
        assert f"`tenure {option}`" in BY_HAND or f"`{option}`" in BY_HAND


def test_all_exit_codes_are_in_the_table() -> None:
    assert re.findall(r"^\| (\d) \| (\w+)", BY_HAND, re.MULTILINE) == [
        (str(int(code)), word)
        for code, word in zip(Exit, ("done", "failed", "wrong", "unreachable", "hung"), strict=True)
    ]


def test_selectors_are_told_in_full() -> None:
    for name, language in (("jobs", JOBS), ("nodes", NODES)):
        [row] = re.findall(rf"^\| {name} \| (.*) \|$", BY_HAND, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == set(language.fields)
        assert all(state in row for state in language.states)


def test_lines_for_publish_are_read() -> None:
    lines = re.findall(r'^\{"to".*$', BY_HAND, re.MULTILINE)
    assert [parse_line(n, line, None).id for n, line in enumerate(lines, 1)] == ["", "order-17"]


def test_all_variables_that_the_code_knows_are_named() -> None:
    found: set[str] = set()
    for folder in ("src/tenure", "scheduler", "jobs", "listeners"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= set(re.findall(r"^TENURE_[A-Z_]+$", node.value))
    assert len(found) > 5
    assert {name for name in found if f"`{name}`" not in BY_HAND} == set()
