"""Applications: found, run, kept apart; and what is said when they can't be."""

import os
import py_compile
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure
from tenure.application import load_application

APP = """
import tenure
{line}

@tenure.job("app-test-counter", version={version})
class Counter(tenure.Job):
    total: int = 0
"""


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    before = dict(tenure.registry._types)
    yield
    tenure.registry._types.clear()
    tenure.registry._types.update(before)


def app(folder: Path, line: str = "", *, version: int = 1, name: str = "app.py") -> Path:
    path = folder / name
    path.write_text(APP.format(line=line, version=version))
    return path


def test_a_file(tmp_path: Path) -> None:
    registry = load_application(app(tmp_path))
    assert registry is tenure.registry
    assert registry["app-test-counter"].version == 1
    assert "app" not in sys.modules


def test_a_file_again_after_a_change(tmp_path: Path) -> None:
    load_application(app(tmp_path))
    assert load_application(app(tmp_path, version=2))["app-test-counter"].version == 2


def test_a_file_is_run_as_it_is_also_where_stored_bytecode_looks_as_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python tells bytecode that is out of date by the file's length and the second of its change."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for version in (1, 2):
        path = app(tmp_path, version=version)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        py_compile.compile(str(path)) if version == 1 else None
        assert load_application(path, apart=True)["app-test-counter"].version == version


def test_two_versions_apart(tmp_path: Path) -> None:
    old = load_application(app(tmp_path, name="old.py"), apart=True)
    new = load_application(str(app(tmp_path, version=2, name="new.py")), apart=True)
    assert (old["app-test-counter"].version, new["app-test-counter"].version) == (1, 2)
    assert "app-test-counter" not in {type.name for type in tenure.registry}


def test_a_module_and_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app_test_neighbour.py").write_text("VERSION = 7\n")
    path = app(tmp_path, "from app_test_neighbour import VERSION", name="app_test_module.py")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_application(path)["app-test-counter"].target.__module__.startswith("_tenure_app_test_module_")
    tenure.registry._types.pop("app-test-counter")
    assert load_application("app_test_module")["app-test-counter"].target.__module__ == "app_test_module"


def test_what_is_loaded_already() -> None:
    registry = tenure.Registry()
    assert load_application(registry) is registry
    assert load_application(None) is tenure.registry
    assert load_application(types.ModuleType("anything")) is tenure.registry


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("x = nonesuch", r"^\S*app\.py, line 3: NameError: name 'nonesuch' is not defined$"),
        ("def f(:", r"^\S*app\.py, line 3: SyntaxError: "),
        ("import nonesuch.module", r"^\S*app\.py, line 3: ModuleNotFoundError: No module named 'nonesuch'$"),
        ("raise SystemExit(3)", r"^\S*app\.py, line 3: SystemExit: 3$"),
        ("import json; json.loads('{')", r"^\S*app\.py, line 3: JSONDecodeError: "),
        ("tenure.job('')(lambda ctx, message: 0)", r"^\S*app\.py, line 3: Mistake: a job type needs a name"),
    ],
)
def test_an_application_that_fails_is_told_of_in_a_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    before = {type.name for type in tenure.registry}
    with pytest.raises(tenure.BadApplication, match=sentence):
        load_application(app(tmp_path, line), apart=True)
    assert {type.name for type in tenure.registry} == before
    assert not [name for name in sys.modules if name.startswith("_tenure_app_") and "broken" in name]


def test_there_is_nothing_to_load(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("")
    tenure.registry._types.clear()
    cases: list[tuple[str | Path, str]] = [
        (tmp_path / "none.py", r"there is no file .*none\.py"),
        (tmp_path, "is a folder; name the Python file"),
        (
            "nonesuch_module",
            "^nonesuch_module can't be loaded: ModuleNotFoundError: No module named 'nonesuch_module'; name a Python",
        ),
        (empty, r"empty\.py registers no job type: put @tenure\.job"),
    ]
    for source, words in cases:
        with pytest.raises(tenure.BadApplication, match=words):
            load_application(source, apart=True)


KINDS = """
import msgspec
import tenure

class Reserved(msgspec.Struct, tag="reserved"):
    sku: str

class Paid(msgspec.Struct, tag="paid"):
    cents: int

@tenure.job("app-test-order")
class Order(tenure.Job):
    def on_message(self, ctx, message: Reserved | Paid) -> None:
        pass

@tenure.job("app-test-orders")
class Orders(tenure.Job):
    def on_message(self, ctx, message: list[Paid]) -> None:
        pass
"""


def test_errors_call_things_by_the_names_that_they_have_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "my-shop.py").write_text(KINDS)
    types = load_application(tmp_path / "my-shop.py")
    with pytest.raises(tenure.WrongType, match=r"\('app-test-order' takes Reserved \| Paid\): "):
        types["app-test-order"].check_message(b"\x01", "o-1")
    with pytest.raises(tenure.WrongType, match=r"\('app-test-orders' takes list\[Paid\]\): "):
        types["app-test-orders"].check_message(b"\x01", "o-1")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "def on_message(self, message: Paid) -> None: ...",
            r"Order\.on_message\(self, message: Paid\) -> None",
        ),
        ("def on_message(self, ctx, message: Paid | Sent) -> None: ...", r"^(?!.*_tenure_)"),
    ],
)
def test_so_do_those_of_handlers_that_are_refused(tmp_path: Path, line: str, said: str) -> None:
    text = "import msgspec, tenure\nclass Paid(msgspec.Struct): ...\nclass Sent(msgspec.Struct): ...\n"
    (tmp_path / "shop.py").write_text(f'{text}@tenure.job("app-test-order")\nclass Order(tenure.Job):\n    {line}\n')
    with pytest.raises(tenure.Mistake, match=said):
        load_application(tmp_path / "shop.py")
