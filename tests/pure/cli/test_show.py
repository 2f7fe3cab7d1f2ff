"""Tables."""

import pytest

from tenure.cli.show import print_table


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["shop:key:7", ":star:", "[bold]a[/bold]", "a" * 150]
    print_table(("id", "state"), [(id, "running") for id in ids])
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown if "running" in line] == ids
