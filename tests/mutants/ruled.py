"""`python -m tests.mutants.ruled [MODULE …]`: mutants by rule, of modules that are pure, run on their fast tests.

One operator, number or condition is another one, in one place; each such mutant lives in a process of its own, forked
before anything of ours is imported. What survives is no fault by itself: it is code that no fast test minds.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CORE = "tests/pure/core/test_"
TESTS: dict[str, tuple[str, ...]] = {
    "activities": (f"{CORE}activities_transitions.py", f"{CORE}activities.py"),
    "assignment": (f"{CORE}assignment.py",),
    "bodies": (f"{CORE}bodies.py", f"{CORE}parameters.py"),
    "budget": (f"{CORE}budget.py",),
    "bulkhead": (f"{CORE}bulkhead.py",),
    "deadline": (f"{CORE}deadline.py",),
    "elapsed": (f"{CORE}lanes.py", f"{CORE}forgetting.py", f"{CORE}deadline.py"),
    "fences": (f"{CORE}fences.py",),
    "formats": (f"{CORE}formats.py",),
    "hangs": (f"{CORE}hangs.py",),
    "image": (f"{CORE}state.py",),
    "inlanes": (f"{CORE}lanes.py", f"{CORE}forgetting.py"),
    "keys": (f"{CORE}keys.py", f"{CORE}lanes.py"),
    "outlanes": (f"{CORE}lanes.py", f"{CORE}sending.py"),
    "precedence": (f"{CORE}precedence.py",),
    "quiet": ("tests/models/test_quiet.py",),
    "snapshots.rehash": (f"{CORE}snapshot_parts.py", f"{CORE}tombstones.py"),
    "snapshots.stragglers": (f"{CORE}snapshot_parts.py",),
    "state": (f"{CORE}state.py",),
    "timers": (f"{CORE}timers.py", "tests/models/test_timers.py"),
    "turnid": (f"{CORE}turnid.py",),
}
"""Module of scheduler/ -> its fast tests."""
EQUIVALENT = Path(__file__).with_name("ruled.equivalent")
"""What survives, and why nobody could find it: module, line, change, reason, with a tab between them."""
TIME_S = 60
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Change(NamedTuple):
    """The `n`th node of the tree is changed in one way."""

    n: int
    line: int
    what: str


def changes(tree: ast.AST) -> Iterator[Change]:
    """All that the rules allow."""
    hints = {id(inner) for node in ast.walk(tree) for outer in _not_run(node) for inner in ast.walk(outer)}
    for n, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if id(node) in hints:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
            yield Change(n, line, f"{ast.unparse(node)} -> {SWAPS[type(node.ops[0])].__name__}")
        elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
            yield Change(n, line, f"{ast.unparse(node)} -> {SWAPS[type(node.op)].__name__}")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield Change(n, line, f"{node.value} -> {node.value + 1}")
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield Change(n, line, f"{node.value} -> {not node.value}")
        elif isinstance(node, (ast.If, ast.IfExp)):
            yield Change(n, line, f"if {ast.unparse(node.test)} -> if not")
        elif isinstance(node, (ast.Break, ast.Continue)) or (isinstance(node, ast.Expr) and _calls(node)):
            yield Change(n, line, f"{ast.unparse(node)} -> pass")


def _calls(node: ast.Expr) -> bool:
    return isinstance(node.value, (ast.Call, ast.Await))


def _not_run(node: ast.AST) -> list[ast.AST]:
    """What says something to readers alone: types, and texts for people."""
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [each for each in (node.returns, *(a.annotation for a in node.args.args)) if each is not None]
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return [node] if is_for_types or isinstance(node, (ast.JoinedStr, ast.Raise)) else []


def mutated(tree: ast.Module, change: Change) -> ast.Module:
    """With that change."""
    tree = deepcopy(tree)
    node = next(node for n, node in enumerate(ast.walk(tree)) if n == change.n)
    if isinstance(node, ast.Compare):
        node.ops = [SWAPS[type(node.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, (ast.If, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    else:
        vars(node).update(vars(ast.Pass(lineno=change.line, col_offset=0)))
        node.__class__ = ast.Pass
    return ast.fix_missing_locations(tree)


class _Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """One module is this one."""

    def __init__(self, name: str, tree: ast.Module, file: str) -> None:
        self.name, self.code = name, compile(tree, file, "exec")

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


def is_killed(module: str, tree: ast.Module, tests: Sequence[str]) -> bool:
    """Does one of these tests fail, or not end?"""
    child = os.fork()
    if not child:
        signal.alarm(TIME_S)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        status = 1
        try:
            import pytest

            name = f"tenure.scheduler.{module}"
            sys.meta_path.insert(0, _Instead(name, tree, f"{module}.py"))
            importlib.import_module(name)  # now, as pytest's own finder would come first
            marks = ["-m", "not slow", "-p", "no:cacheprovider", "-x", "-q"]
            marks += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
            status = int(pytest.main([*marks, *(str(ROOT / test) for test in tests)]))
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    return ended != 0


def main() -> int:
    """1: some survive, and nobody says that they may."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.ruled", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="of scheduler/; all that there are tests for")
    parser.add_argument("--each", type=int, default=40, help="so many of each module, chosen by lot; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import msgspec  # noqa: F401  # once, before the forks
    import pytest  # noqa: F401
    import trio.testing  # noqa: F401

    lines = EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []
    known = {tuple(line.split("\t")[:3]) for line in lines}
    made = killed = equivalent = left = 0
    for module in options.modules or TESTS:
        text = (ROOT / "scheduler" / f"{module.replace('.', '/')}.py").read_text()
        tree, began_s = ast.parse(text), time.monotonic()
        all_of_it = list(changes(tree))
        some = sorted(Random(f"{options.seed} {module}").sample(all_of_it, min(options.each or 10**6, len(all_of_it))))
        if is_killed(module, tree, TESTS[module]):
            print(f"{module}: its tests fail without any mutant", flush=True)
            return 1
        for change in some:
            where = text.splitlines()[change.line - 1].strip()
            made += 1
            if (module, where, change.what) in known:
                equivalent += 1
            elif is_killed(module, mutated(tree, change), TESTS[module]):
                killed += 1
            else:
                left += 1
                print(f"{module}\t{where}\t{change.what}\tline {change.line}", flush=True)
        print(f"{module}: {len(some)} of {len(all_of_it)} ({time.monotonic() - began_s:.0f} s)", flush=True)
    print(f"{made} made, {killed} killed, {equivalent} equivalent, {left} left")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
