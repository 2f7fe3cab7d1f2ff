"""What `tenure dev` watches, and what a command line means by an application."""

import importlib
import os
import py_compile
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tenure.cli.dev import _check_there, _forget_bytecode, _keep_running, _syntax_problem, snapshot, watched_folder
from tenure.cli.ends import Exit
from tenure.cli.options import Output
from tenure.nodes.application import load, source_of
from tenure.nodes.whereabouts import announced, embedded_clusters
from tenure.scheduler.errors import Mistake


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "shop_under_test" / "jobs"
    folder.mkdir(parents=True)
    (tmp_path / "shop_under_test" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    (folder / "names.py").write_text('NAME = "order-under-test"\n')
    (folder / "orders.py").write_text(
        "import tenure\nfrom .names import NAME\n\n@tenure.job(NAME)\nclass Order(tenure.Job):\n    n: int = 0\n"
    )
    return folder


def test_a_file_of_a_package_is_loaded_with_its_neighbours(package: Path) -> None:
    file = package / "orders.py"
    assert source_of(str(file)) == ("shop_under_test.jobs.orders", package.parents[1])
    try:
        assert load(str(file)).registry["order-under-test"]
    finally:
        sys.path.remove(str(package.parents[1]))


def test_a_folder_is_no_application(package: Path) -> None:
    with pytest.raises(Mistake, match="is a folder"):
        source_of(str(package))


def test_the_whole_package_is_watched(package: Path) -> None:
    assert watched_folder(str(package / "orders.py")) == package.parent


def test_a_change_is_seen_and_what_is_not_the_applications_is_not(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("a = 1")
    for foreign in (".git", "__pycache__", ".venv"):
        (tmp_path / foreign).mkdir()
        (tmp_path / foreign / "x.py").write_text("")
    before = snapshot(watched_folder(str(tmp_path / "app.py")))
    assert list(before) == [tmp_path / "app.py"]
    os.utime(tmp_path / "app.py", ns=(1, 1))
    (tmp_path / "other.py").write_text("")
    after = snapshot(tmp_path)
    assert after != before
    assert tmp_path / "other.py" in after


def test_tests_beside_the_application_are_not_watched(tmp_path: Path) -> None:
    for name in ("app.py", "test_app.py", "app_test.py", "conftest.py", "latest_prices.py"):
        (tmp_path / name).write_text("")
    app = str(tmp_path / "app.py")
    assert {path.name for path in snapshot(watched_folder(app), app)} == {"app.py", "latest_prices.py"}
    app = str(tmp_path / "test_app.py")
    assert "test_app.py" in {path.name for path in snapshot(watched_folder(app), app)}


def test_of_tests_only_those_that_the_application_imports_are_watched(tmp_path: Path) -> None:
    files = {
        "app.py": "import os, prices\nfrom tests import (\n    fakes,\n)\n",
        "prices.py": "def f():\n    from price_test import TABLE  # as it is\n",
        "price_test.py": "",
        "test_app.py": "import app",
        "tests/__init__.py": "",
        "tests/fakes.py": "from .helpers import fake",
        "tests/helpers.py": "",
        "tests/helpers_of_tests.py": "",
        "tests/conftest.py": "from . import fakes",
        "tests/unit/cases.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    app = str(tmp_path / "app.py")

    def watched() -> set[str]:
        return {path.relative_to(tmp_path).as_posix() for path in snapshot(watched_folder(app), app)}

    used = {"app.py", "prices.py", "price_test.py", "tests/__init__.py", "tests/fakes.py", "tests/helpers.py"}
    assert watched() == used
    (tmp_path / "prices.py").write_text("")
    os.utime(tmp_path / "prices.py", ns=(1, 1))
    assert watched() == used - {"price_test.py"}


def test_an_application_in_a_folder_of_tests_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "shop" / "tests"
    package.mkdir(parents=True)
    for name in ("shop/__init__.py", "shop/tests/__init__.py", "shop/tests/test_jobs.py"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    folder = watched_folder("shop.tests.test_jobs")
    assert package / "test_jobs.py" in snapshot(folder, "shop.tests.test_jobs")


def test_a_syntax_error_is_found_before_a_node_is_stopped_for_it(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("a = 1\n")
    bad.write_text("a = 1\ndef f(\n")
    assert _syntax_problem([good, tmp_path / "removed.py"]) is None
    assert (_syntax_problem([good, bad]) or "").startswith("bad.py:2: SyntaxError")


def test_an_embedded_cluster_is_found_for_as_long_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    (tmp_path / "embedded-999999999.json").write_text('{"cluster": "dead@127.0.0.1:1", "started": 1}')
    (tmp_path / f"embedded-{os.getppid()}.json").write_text("half a li")
    with announced("mine@127.0.0.1:5"):
        assert embedded_clusters() == ["mine@127.0.0.1:5"]
    assert embedded_clusters() == []
    assert list(tmp_path.iterdir()) == [], "notes of the dead are thrown away"


def test_what_is_there_is_watched_whether_it_can_be_loaded_or_not(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("def nonsense(:\n")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("shop_under_test")]:
        monkeypatch.delitem(sys.modules, name)
    for app in ("broken.py", "broken", "shop_under_test.jobs.orders", str(package / "orders.py"), "tenure.demo"):
        _check_there(app)
    assert "shop_under_test" not in sys.modules, "looked for, not imported"


async def test_an_application_that_can_not_be_loaded_is_waited_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    app, stop, said = tmp_path / "app_with_a_mistake.py", trio.Event(), ""

    async def until(words: str) -> None:
        nonlocal said
        while words not in said:
            await trio.sleep(0.05)
            said += capfd.readouterr().err

    app.write_text("import tenure\n\nnonsense\n")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep_running, str(app), "nobody@127.0.0.1:9", tmp_path, stop, Output())
            await until("The node has ended (exit code 2). Waiting for a change.")
            assert "NameError" in said
            app.write_text("import tenure\n\n@tenure.job('x')\nclass X(tenure.Job): ...\n")
            await until("Changed: app_with_a_mistake.py. Starting the node again")
            await trio.sleep(0.6)
            stop.set()
    assert said.count("The node has ended") == 1, "said once, and the new one has not ended"


def test_a_module_that_has_changed_is_not_taken_from_stored_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    path = tmp_path / "module_that_changes.py"
    values = []
    for value in (1, 2):
        path.write_text(f"VALUE = {value}\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        _forget_bytecode([path, tmp_path / "never_was.py"])
        importlib.invalidate_caches()
        values.append(importlib.import_module("module_that_changes").VALUE)
        py_compile.compile(str(path))
        del sys.modules["module_that_changes"]
    assert values == [1, 2]


class _Ended:
    """A node's process that has ended."""

    def __init__(self, code: int, looked_at: Callable[[], None]) -> None:
        self.returncode, self._looked_at = code, looked_at

    def poll(self) -> int:
        self._looked_at()
        return self.returncode


async def test_a_node_that_its_watchdog_has_ended_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [Exit.HUNG, Exit.HUNG, Exit.FAILED]
    started, looks = list[int](), list[int]()
    stop = trio.Event()

    def looked_at() -> None:
        looks.append(started[-1])
        if looks.count(Exit.FAILED) > 5:
            stop.set()

    def start(*_: object) -> _Ended:
        started.append(codes.pop(0))
        return _Ended(started[-1], looked_at)

    monkeypatch.setattr("tenure.cli.dev._start", start)
    # It looks in a thread, of which a mocked clock knows nothing.
    monkeypatch.setattr("tenure.cli.dev.LOOK_EVERY_S", 0.001)
    with trio.fail_after(60):
        await _keep_running("app.py", "x@y:1", tmp_path, stop, Output())
    assert started == [Exit.HUNG, Exit.HUNG, Exit.FAILED]  # of that one a change is awaited


def test_what_python_can_not_parse_for_its_depth_is_a_problem_like_any_other(tmp_path: Path) -> None:
    """It ended `tenure dev`, and all its jobs."""
    (tmp_path / "deep.py").write_text(f"x = {'-' * 200_000}1")
    assert (_syntax_problem([tmp_path / "deep.py"]) or "").startswith("deep.py:")
