"""The note of an embedded cluster, and those who read it while it is being written."""

from pathlib import Path
from typing import Any

import pytest

from tenure.nodes.whereabouts import announced, embedded_clusters


def test_whoever_looks_while_a_note_is_written_does_it_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    looks = []
    write = Path.write_text

    def write_slowly(path: Path, text: str, **options: Any) -> int:
        write(path, text[: len(text) // 2], **options)
        looks.append(embedded_clusters())
        with path.open("r+") as file:  # not made anew, should it have been thrown away
            return file.write(text)

    monkeypatch.setattr(Path, "write_text", write_slowly)
    with announced("mine@127.0.0.1:5"):
        assert looks == [[]]
        assert embedded_clusters() == ["mine@127.0.0.1:5"]
    assert list(tmp_path.iterdir()) == []
