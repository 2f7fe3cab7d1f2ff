"""`python -m tests.reproduce ID`: a finding of docs/engineering/findings.md, on the version before it was mended.

The tests of that finding are put into a work tree of the version before, and run there: they must fail. Seeds of the
simulation are run with the simulation of now on the engine of before. Nothing here is changed; the tree is removed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FINDINGS = ROOT / "docs" / "engineering" / "findings.md"
BEFORE = re.compile(r"The version before: `([0-9a-f]{7,40})`")
TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)?)`")
SEED = re.compile(r"`tenure simulate --from (\d+) --seeds 1(?: --workload (\w+))?`")
SIMULATION = ("src/tenure/simulation", "scheduler/grid/memory")
"""What of now runs the engine of before."""
ON_BEFORE = '''
import importlib.abc, importlib.machinery, inspect, sys
from unittest.mock import MagicMock

class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for modules that were not there yet: what uses them breaks, and nothing else."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.startswith("tenure.") else None

    def exec_module(self, module):
        module.__getattr__ = lambda name: MagicMock()

import tenure.scheduler.client, tenure.scheduler.node  # before anything is replaced
sys.meta_path.append(Missing())
from tenure.scheduler import cluster, host, settings

def lenient(make):
    known = inspect.signature(make).parameters
    return lambda *arguments, **options: make(*arguments, **{n: v for n, v in options.items() if n in known})

makes = (settings, "NodeSettings"), (settings, "ClientSettings"), (host, "Host"), (cluster, "find_or_form")
for module, name in makes:
    setattr(module, name, lenient(getattr(module, name)))
from tenure.simulation import main
sys.exit(main(sys.argv[1:]))
'''
"""The simulation may ask for what the engine of before has not."""


class Finding(NamedTuple):
    """One row of the table."""

    id: str
    what: str
    tests: list[str]
    seeds: list[tuple[str, str]]
    """(seed, workload or nothing)"""


def findings(text: str) -> dict[str, Finding]:
    """All rows that name a test or a seed, by their ids."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) >= 5 and (tests := TEST.findall(line), seeds := SEED.findall(line)) != ([], []):
            found[cells[0]] = Finding(cells[0], cells[1], tests, seeds)
    return found


@contextmanager
def work_tree(commit: str) -> Iterator[Path]:
    """The version before, for a while."""
    with tempfile.TemporaryDirectory(prefix="tenure-before-") as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def run(tree: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """With the package and the tests of that tree."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree)))}
    return subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def fails_before(tree: Path, test: str) -> bool:
    """The test of now, with what it needs beside it that was not there."""
    for file in (ROOT / "tests").rglob("*.py"):
        there = tree / file.relative_to(ROOT)
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, there)
    path = test.partition("::")[0]
    shutil.copy(ROOT / path, tree / path)
    ended = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", test)
    print("\n".join(ended.stdout.splitlines()[-6:]))
    return ended.returncode != 0


def violates_before(tree: Path, seed: str, workload: str) -> bool:
    """The simulation of now, on the engine of before."""
    for part in SIMULATION:
        shutil.rmtree(tree / part)
        shutil.copytree(ROOT / part, tree / part)
    only = ("--workload", workload) if workload else ()
    ended = run(tree, "-c", ON_BEFORE, "--from", seed, "--seeds", "1", *only)
    print("\n".join(line[:300] for line in ended.stdout.splitlines() if line.startswith("violation")))
    return "violation in seed" in ended.stdout


def main() -> int:
    """0: each test, and each seed, finds it on the version before."""
    parser = argparse.ArgumentParser(prog="python -m tests.reproduce", description=__doc__)
    parser.add_argument("id", help="as it stands in docs/engineering/findings.md")
    wanted = parser.parse_args().id
    text = FINDINGS.read_text()
    known, before = findings(text), BEFORE.search(text)
    if wanted not in known or before is None:
        print(f"there is no finding {wanted!r} with a test in {FINDINGS.name}: {', '.join(known)}")
        return 2
    missed, finding = [], known[wanted]
    print(f"{finding.id}: {finding.what}")
    for test in finding.tests:
        with work_tree(before[1]) as tree:
            if not fails_before(tree, test):
                missed.append(test)
    for seed, workload in finding.seeds:
        with work_tree(before[1]) as tree:
            if not violates_before(tree, seed, workload):
                missed.append(f"seed {seed} {workload}".strip())
    for each in missed:
        print(f"does not find it on {before[1]}: {each}")
    if not missed:
        print(f"found on {before[1]}, as it should be")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
