"""The public names: there, documented, and imported when they are first used."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tenure
import tenure.scheduler.errors as errors

HEAVY = ("hazelcast", "anyio", "trio", "asyncio", "rich", "msgspec", "structlog", "cyclopts", "cloudpickle", "pytest")


def modules_after(code: str) -> set[str]:
    """What is imported by it, in a fresh Python."""
    source = Path(tenure.__file__).parents[1]
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n{code}\nimport json; print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def test_importing_tenure_imports_nothing_heavy() -> None:
    assert not modules_after("import tenure").intersection(HEAVY)


def test_defining_jobs_needs_no_client_and_no_grid() -> None:
    loaded = modules_after("import tenure\n@tenure.job('x')\nclass X(tenure.Job): n: int = 0")
    assert not loaded.intersection({"hazelcast", "anyio", "rich", "tenure.clients"})


def test_a_client_does_not_import_hazelcast_before_it_connects() -> None:
    loaded = modules_after("import tenure; tenure.Client; tenure.SyncClient")
    assert not loaded.intersection({"hazelcast", "cyclopts", "pytest"})


@pytest.mark.parametrize("name", tenure.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(tenure, name)
    if inspect.isclass(found) or inspect.isfunction(found):
        assert inspect.getdoc(found)
    assert name in dir(tenure)


def test_all_errors_are_public() -> None:
    assert set(errors.__all__) <= set(tenure.__all__)


def test_every_error_is_of_one_family() -> None:
    families = (tenure.TryAgain, tenure.Final, tenure.Mistake)
    for name in errors.__all__:
        error = getattr(tenure, name)
        if error not in (*families, tenure.TenureError):
            assert sum(issubclass(error, family) for family in families) == 1, name


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'tenure' has no attribute 'Clinet'"):
        tenure.Clinet  # noqa: B018
    with pytest.raises(AttributeError, match=r"tenure\.testing"):
        tenure.testing.Clutser  # noqa: B018
