"""The grid's adapter to Hazelcast: the only package that imports its client."""

from tenure.scheduler.grid.hazelcast.grid import HazelcastGrid, MemberSeen
from tenure.scheduler.grid.hazelcast.settings import CannotConnect, HazelcastSettings, map_name

__all__ = ["CannotConnect", "HazelcastGrid", "HazelcastSettings", "MemberSeen", "map_name"]
