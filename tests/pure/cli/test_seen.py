"""Commands say when the cluster at an address is another than before, until somebody says that it is meant to be."""

from pathlib import Path

import pytest

from tenure.cli import seen
from tenure.cli.seen import another_than_before
from tenure.nodes.memory import seen_memory
from tenure.nodes.whereabouts import announced
from tenure.scheduler.cluster import Cluster

HERE = "shop@127.0.0.1:5701,127.0.0.1:5702"
FIRST, OTHER = Cluster("first", 1, 271, True), Cluster("other", 1, 271, True)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path))
    return tmp_path


def test_another_cluster_is_said_each_time_until_it_is_accepted() -> None:
    assert another_than_before(HERE, FIRST) == ""
    for _ in range(2):
        what = another_than_before("shop@127.0.0.1:5702,127.0.0.1:5701", OTHER)
        assert all(word in what for word in ("other", "first", "came back empty"))
    assert another_than_before("shop@127.0.0.1:5703", OTHER) == "", "elsewhere it is the first that is seen"
    assert another_than_before(HERE, OTHER, accept=True) == ""
    assert another_than_before(HERE, OTHER) == ""
    assert another_than_before(HERE, FIRST) != ""


@pytest.mark.parametrize(
    "cluster", [Cluster("new", 2, 271, True, restored="snapshot"), Cluster("new", 2, 271, True, anew=True)]
)
def test_what_was_put_there_on_purpose_is_the_right_one(cluster: Cluster) -> None:
    another_than_before(HERE, FIRST)
    assert another_than_before(HERE, cluster) == ""
    assert "new" in another_than_before(HERE, OTHER)


def test_embedded_clusters_are_new_each_time(state: Path) -> None:
    with announced(HERE):
        another_than_before(HERE, FIRST)
        assert another_than_before(HERE, OTHER) == ""
    assert not (state / "seen").exists()


def test_notes_that_can_not_be_read_or_written_are_in_nobodys_way(state: Path) -> None:
    another_than_before(HERE, FIRST)
    (note,) = (state / "seen").iterdir()
    note.write_text("half")
    assert another_than_before(HERE, OTHER) == ""
    note.unlink()
    (state / "seen").rmdir()
    (state / "seen").write_text("a file")
    assert another_than_before(HERE, OTHER) == ""


def test_notes_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    monkeypatch.setattr(seen, "NOTES_MAX", 3)
    for n in range(9):
        another_than_before(f"shop@127.0.0.1:{n + 1}", FIRST)
    assert len(list((state / "seen").iterdir())) == 3
    assert seen_memory("shop", ("127.0.0.1:9",)).recall() == FIRST
