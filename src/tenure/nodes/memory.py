"""Which cluster was here before: what nodes and commands note down, for the day when all members come back empty.

A grid keeps nothing on disk. When every member and every node were started anew, nobody would know that there was
ever a cluster, and an empty one would be formed in silence. So each node notes down what it joined, in a folder that
outlives it, by the cluster's name and addresses; commands note what they saw.
"""

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import platformdirs

from tenure.scheduler.cluster import Cluster
from tenure.scheduler.errors import Mistake

__all__ = ["Memory", "follows", "nodes_memory", "seen_memory"]


class Memory:
    """One file's worth: the cluster that was last known at these addresses."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def recall(self) -> Cluster | None:
        """What is noted; None: nothing. Raises `Mistake` where there is a note that can't be read, or `OSError`."""
        try:
            stored = self.file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            said: dict[str, Any] = json.loads(stored)
            return Cluster(
                str(said["formation"]),
                int(said["incarnation"]),
                int(said["partition_count"]),
                True,
                int(said["format"]),
            )
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise Mistake(
                f"{self.file} should say which cluster was here before, and can't be read ({error!r}): remove it if "
                "that does not matter"
            ) from error

    def note(self, cluster: Cluster) -> None:
        """This is the cluster. Raises `OSError`."""
        said = {
            "formation": cluster.formation,
            "incarnation": cluster.incarnation,
            "partition_count": cluster.partition_count,
            "format": cluster.format,
            "noted_ms": time.time_ns() // 1_000_000,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self.file.with_name(f"{self.file.name}.{os.getpid()}.draft")
        draft.write_text(json.dumps(said))
        draft.replace(self.file)  # whoever reads meanwhile finds one or the other


def nodes_memory(cluster_name: str, addresses: tuple[str, ...], folder: Path | None = None) -> Memory:
    """The one of this machine's nodes."""
    return Memory((folder or _state() / "clusters") / f"{_key(cluster_name, addresses)}.json")


def seen_memory(cluster_name: str, addresses: tuple[str, ...]) -> Memory:
    """The one of this user's commands."""
    return Memory(_state() / "seen" / f"{_key(cluster_name, addresses)}.json")


def follows(before: Cluster, now: Cluster) -> bool:
    """Is this the cluster that was known, or was it put in its place on purpose: restored, or begun anew by a word?"""
    return now.formation == before.formation or bool(now.restored) or now.anew


def _state() -> Path:
    return Path(os.environ.get("TENURE_STATE_DIR") or platformdirs.user_state_path("tenure", appauthor=False))


def _key(cluster_name: str, addresses: tuple[str, ...]) -> str:
    """The order of addresses says nothing; a name may hold what files can't."""
    text = f"{cluster_name}@{','.join(sorted(addresses))}"
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', cluster_name)[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
