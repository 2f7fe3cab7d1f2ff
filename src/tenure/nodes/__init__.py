"""The process behind `tenure node`: it loads an application, joins a cluster, runs jobs, and drains when it is told to go.

Imports are lazy where they are slow: a command that only needs an address should not wait for a grid client.
"""

from tenure.nodes.address import ClusterAddress
from tenure.nodes.application import Application, load_application
from tenure.nodes.errors import (
    ApplicationError,
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
    "ApplicationError",
    "ClusterAddress",
    "ClusterLost",
    "ClusterReplaced",
    "GridGone",
    "MemberEnded",
    "NodeError",
    "NotDrained",
    "UnsafeMembers",
    "load_application",
]
