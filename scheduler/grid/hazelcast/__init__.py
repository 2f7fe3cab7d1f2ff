"""The grid's adapter to Hazelcast: the only package that imports its client."""

import logging
import warnings

with warnings.catch_warnings():
    # On Python 3.11 the client imports asyncore, which is deprecated there; on later ones it brings its own.
    warnings.filterwarnings("ignore", message=".*asyncore.*", category=DeprecationWarning)
    import hazelcast as _hazelcast  # noqa: F401  # before anything else imports it

from tenure.scheduler.grid.hazelcast.grid import HazelcastGrid, MemberSeen
from tenure.scheduler.grid.hazelcast.members_told import MemberTold
from tenure.scheduler.grid.hazelcast.settings import CannotConnect, HazelcastSettings, map_name

__all__ = ["CannotConnect", "HazelcastGrid", "HazelcastSettings", "MemberSeen", "MemberTold", "map_name"]

# Where nobody has set up logging, the client would write each of its attempts to standard error.
logging.getLogger("hazelcast").addHandler(logging.NullHandler())
