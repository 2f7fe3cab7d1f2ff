"""Files that are written whole or not at all, whatever their name leads to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.clients.exports import replaced

ROOT = Path(__file__).parents[3]


def write(path: Path, text: str = "new") -> None:
    with replaced(path) as file:
        file.write(text)


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replaced(path) as file:  # noqa: PT012  # one thing, told in steps
        file.write("half")
        file.flush()
        assert path.read_text() == "old"
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["out"]
    assert path.read_text() == "old"
    write(path)
    assert os.listdir(tmp_path) == ["out"]
    assert path.read_text() == "new"


def test_a_link_stays_one_and_leads_to_what_is_new(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("mode", [None, 0o600, 0o640, 0o644])
def test_nobody_can_read_it_who_could_not_before(tmp_path: Path, mode: int | None) -> None:
    path = tmp_path / "out"
    if mode is not None:
        path.write_text("old")
        path.chmod(mode)
    write(path)
    assert path.stat().st_mode & 0o777 == (0o600 if mode is None else mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_where_the_shell_has_sent_the_output_it_is_written_to(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    program = f"from pathlib import Path; from tests.pure.cli.test_exports import write; write(Path({name!r}))"
    with out.open("w") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True, cwd=ROOT)
    assert out.read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]
    piped = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, cwd=ROOT)
    assert piped.stdout == b"new"
