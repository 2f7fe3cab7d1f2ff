"""Finding a mutant: in a copy of the engine that has it, the tests are run, then the simulation, until one says no."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.mutant import Mutant

__all__ = ["ROOT", "finds", "search", "tree"]

ROOT = Path(__file__).parents[2]
NEAR = {
    "snapshots/": ("snapshot_parts", "snapshot_protocol", "snapshot_claims", "restored_lanes", "founding"),
    "cutting.py": ("snapshot_protocol", "snapshot_parts"),
    "image.py": ("state", "snapshot_parts"),
    "state.py": ("state", "tombstones", "forgetting"),
    "imaging.py": ("journal", "following"),
    "journal.py": ("journal", "following", "crashes"),
    "draft.py": ("forgetting", "state", "tenure", "tenure_exactness"),
    "inlanes.py": ("lanes", "restored_lanes"),
    "outlanes.py": ("lanes", "sending"),
    "sending.py": ("sending", "allegiance"),
    "allegiance.py": ("allegiance", "seal"),
    "seal.py": ("seal",),
    "forgetting.py": ("forgetting",),
    "watermark.py": ("forgetting",),
    "definitions.py": ("definitions", "tombstones", "ending", "parameters"),
    "defining.py": ("definitions", "tombstones"),
    "stopping.py": ("ending", "tombstones"),
    "suspicion.py": ("crashes", "hangs", "tests/api/test_hang_words.py"),
    "alarms.py": ("timers", "timers_of_turns"),
    "timers.py": ("timers", "timers_of_turns"),
    "activities": ("activities", "activities_transitions", "activities_reporting", "activities_chaos"),
    "assignment.py": ("assignment", "lost_assignments"),
    "node.py": ("lost_assignments", "assignment", "handoffs"),
    "hangs.py": ("hangs",),
    "bulkhead.py": ("bulkhead", "tests/api/test_bulkheads.py"),
    "serving.py": ("tests/api/test_bulkheads.py", "handoffs"),
    "failing.py": ("nurseries", "retries", "tenure"),
    "threads.py": ("tests/api/test_threads.py",),
    "lookout.py": ("nodes_seen", "tests/api/test_hang_words.py"),
    "chronicle.py": ("tests/api/test_chronicle.py",),
    "failure_log.py": ("tests/api/test_failed_attempts.py",),
    "tenure/nodes/": ("tests/pure/nodes/test_watchdog.py",),
    "tenure/cli/": ("tests/pure/cli",),
    "": ("tenure", "tenure_exactness", "handlers", "retries", "fences"),
}
"""Where to look first, by file: tests of the core, or others by their whole paths."""
NEAR_SEEDS = 40
TESTS = ("tests/pure/core", "tests/models")
MORE_TESTS = (
    "tests/api/test_bulkheads.py",
    "tests/api/test_hang_words.py",
    "tests/api/test_threads.py",
    "tests/api/test_failures.py",
    "tests/api/test_faults.py",
    "tests/api/test_formats.py",
    "tests/api/test_jobs.py",
    "tests/api/test_messages.py",
    "tests/api/test_shutdown.py",
    "tests/api/test_snapshots.py",
    "tests/api/test_time.py",
    "tests/api/test_activities.py",
    "tests/api/test_activities_faults.py",
)
SEEDS = 300
HANGS_S = 420
"""A mutant that makes tests go on for ever is found, too."""


@contextmanager
def tree(mutant: Mutant) -> Iterator[Path]:
    """A folder for PYTHONPATH: the package as it is here, but for the mutant."""
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        package = Path(folder, "tenure")
        package.mkdir()
        part = mutant.path.partition("/")[0]
        for entry in (ROOT / "src" / "tenure").iterdir():
            if entry.name not in (part, "__pycache__"):
                (package / entry.name).symlink_to(entry.resolve())
        shutil.copytree(ROOT / "src" / "tenure" / part, package / part, ignore=shutil.ignore_patterns("__pycache__"))
        text = (package / mutant.path).read_text()
        if text.count(mutant.before) != 1:
            raise LookupError(f"{mutant.name}: its text stands {text.count(mutant.before)} times in {mutant.path}")
        (package / mutant.path).write_text(text.replace(mutant.before, mutant.after))
        yield Path(folder)


def search(mutant: Mutant, *, seeds: int = SEEDS, quick: bool = False) -> str | None:
    """What finds it: a test, or a seed. None: nothing does. `quick`: only where it is likely to be found."""
    near = next(tests for part, tests in NEAR.items() if mutant.file.startswith(part))
    with tree(mutant) as folder:
        tests = [name if "/" in name else f"{TESTS[0]}/test_{name}.py" for name in near]
        if (found := _in_tests(folder, tests)) is not None:
            return found
        if (found := _in_seeds(folder, ("--seeds", str(NEAR_SEEDS)))) is not None:
            return found
        if quick:
            return None
        for some in (TESTS, MORE_TESTS):
            if (found := _in_tests(folder, some)) is not None:
                return found
        return _in_seeds(folder, ("--seeds", str(seeds)))


def finds(finder: str, mutant: Mutant) -> bool:
    """Does this test, or a seed up to a little after this one, find it (still)?"""
    with tree(mutant) as folder:
        if finder.startswith("seed "):
            number, _, workload = finder.removeprefix("seed ").partition(" of ")
            # Each change of the engine or of the simulator draws other runs: a neighbour may find it now.
            arguments = ["--seeds", str(int(number) + NEAR_SEEDS), *(("--workload", workload) if workload else ())]
            return _in_seeds(folder, arguments) is not None
        return _in_tests(folder, [finder.removesuffix(" (hangs)")]) is not None


def _in_tests(folder: Path, tests: Sequence[str]) -> str | None:
    try:
        ended = _run(folder, _pytest(tests))
    except subprocess.TimeoutExpired:
        return f"{tests[0]} (hangs)"
    if ended.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
    finder = found[1] if found is not None else f"{tests[0]}: {ended.stdout[-300:]}"
    if found is not None and _run(ROOT / "src", _pytest([finder])).returncode:
        raise RuntimeError(f"{finder} fails on the engine as it is, too")
    return finder


def _pytest(tests: Sequence[str]) -> list[str]:
    return ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-rfE", *tests]


def _in_seeds(folder: Path, arguments: Sequence[str]) -> str | None:
    try:
        ended = _run(folder, ["-m", "tenure.simulation", *arguments])
    except subprocess.TimeoutExpired:
        return f"seed {arguments[-1]} (hangs)"
    found = re.search(r"^violation in seed (\d+):", ended.stdout, re.MULTILINE)
    return None if found is None else f"seed {found[1]}"


def _run(folder: Path, command: list[str]) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join((str(folder), str(ROOT)))
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
