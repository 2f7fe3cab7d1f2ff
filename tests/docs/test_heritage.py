"""What docs/heritage.md names as shown is shown: its tests exist, and every row has one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "heritage.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| there |")]
NAMED = re.findall(r"`tests/([\w/]+\.py)::(test_\w+)`", PAGE)


def functions_in(module: str) -> set[str]:
    nodes = ast.walk(ast.parse((ROOT / "tests" / module).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_all_tests_that_it_names_exist() -> None:
    missing = [f"{module}::{name}" for module, name in NAMED if name not in functions_in(module)]
    assert missing == []
    assert len(NAMED) > 40


def test_every_row_names_a_test() -> None:
    assert [row for row in ROWS if not re.search(r"`tests/[\w/]+\.py::test_\w+`", row.split(" | ")[-1])] == []


def test_every_test_of_heritage_is_in_it() -> None:
    ours = {
        (f"heritage/{path.name}", name)
        for path in (ROOT / "tests" / "heritage").glob("test_*.py")
        for name in functions_in(f"heritage/{path.name}")
        if name.startswith("test_")
    }
    assert ours - set(NAMED) == set()
