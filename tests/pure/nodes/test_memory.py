"""What a machine's nodes note down of their cluster, for the day when nobody else remembers it."""

from pathlib import Path

import pytest

from tenure.nodes.memory import follows, nodes_memory, seen_memory
from tenure.scheduler.cluster import Cluster
from tenure.scheduler.errors import Mistake

CLUSTER = Cluster("f", 3, 271, True, 1)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_what_is_noted_is_recalled() -> None:
    assert nodes_memory("shop", ("a:1", "b:2")).recall() is None
    nodes_memory("shop", ("a:1", "b:2")).note(CLUSTER)
    assert nodes_memory("shop", ("b:2", "a:1")).recall() == CLUSTER
    for other in (nodes_memory("shop", ("a:1",)), nodes_memory("shop2", ("a:1", "b:2")), seen_memory("shop", ("a:1",))):
        assert other.recall() is None


def test_notes_lie_where_they_are_to(tmp_path: Path, state: Path) -> None:
    nodes_memory("../a b", ("a:1",), tmp_path / "mine").note(CLUSTER)
    (file,) = (tmp_path / "mine").iterdir()
    assert not state.exists()
    assert nodes_memory("../a b", ("a:1",), tmp_path / "mine").recall() == CLUSTER
    assert file.name.startswith("___a_b-")


@pytest.mark.parametrize("text", ["", "half", "[]", "{}", "\udcff\udcfe", '{"formation": "f", "incarnation": "x"}'])
def test_a_note_that_can_not_be_read_is_not_taken_for_none(text: str, tmp_path: Path) -> None:
    memory = nodes_memory("shop", ("a:1",), tmp_path)
    memory.note(CLUSTER)
    memory.file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(Mistake, match=r"can't be read.*remove it"):
        memory.recall()


def test_what_follows_a_cluster() -> None:
    assert follows(CLUSTER, CLUSTER)
    assert follows(CLUSTER, Cluster("g", 4, 271, True, restored="s"))
    assert follows(CLUSTER, Cluster("g", 4, 271, True, anew=True))
    assert not follows(CLUSTER, Cluster("g", 4, 271, True))
