"""`tenure member`, where that takes no member."""

import pytest

from tenure.cli import main
from tenure.cli.ends import Exit


@pytest.mark.parametrize(
    ("option", "value"), [("--backups", "9"), ("--members-count", "0"), ("--partitions", "0"), ("--port", "70000")]
)
def test_what_can_not_be_is_named_as_it_was_given(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["member", option, value]) == Exit.USAGE
    assert f"{option} is {value}: " in capsys.readouterr().err
