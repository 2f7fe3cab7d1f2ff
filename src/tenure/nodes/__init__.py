"""The process behind `tenure node`: it loads an application, joins a cluster, runs jobs, and drains when told to go."""

from tenure.nodes.application import Application, load
from tenure.nodes.errors import (
    ClusterEnded,
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
    "ClusterEnded",
    "ClusterLost",
    "ClusterReplaced",
    "GridGone",
    "MemberEnded",
    "NodeError",
    "NotDrained",
    "UnsafeMembers",
    "load",
]
