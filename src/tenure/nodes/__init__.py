"""The process behind `tenure node`: it loads an application, joins a cluster, runs jobs, and drains when told to go."""

from tenure.nodes.application import Application, load
from tenure.nodes.errors import (
    ClusterLost,
    ClusterReplaced,
    GridGone,
    MemberEnded,
    NodeError,
    NotDrained,
    UnsafeMembers,
)

__all__ = [
    "Application",
    "ClusterLost",
    "ClusterReplaced",
    "GridGone",
    "MemberEnded",
    "NodeError",
    "NotDrained",
    "UnsafeMembers",
    "load",
]
