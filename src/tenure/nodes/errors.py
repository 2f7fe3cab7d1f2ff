"""Why a node does not start, or ends: each in a sentence, with the step to take next."""

from tenure.scheduler import errors
from tenure.scheduler.errors import Final, TenureError, TryAgain

__all__ = [
    "ClusterEnded",
    "ClusterLost",
    "ClusterReplaced",
    "GridGone",
    "MemberEnded",
    "NodeError",
    "NotDrained",
    "UnsafeMembers",
]


class NodeError(TenureError):
    """A node could not start or go on."""


class UnsafeMembers(NodeError, Final):
    """The members lack settings that the promises rest on."""


class GridGone(NodeError, TryAgain):
    """No member has answered for as long as the node was told to wait."""


class ClusterLost(NodeError, Final):
    """The grid has come back empty: everything that was in it is lost."""


class ClusterEnded(NodeError, Final):
    """The cluster was shut down with a snapshot: it goes on where that is restored, and nowhere else."""


class ClusterReplaced(NodeError, errors.ClusterReplaced):
    """The grid now holds another cluster than the one that this node knew."""


class MemberEnded(NodeError, Final):
    """The embedded member has ended, and all data with it."""


class NotDrained(NodeError):
    """The deadline for handing over has passed: others take over what is left as after a crash."""
