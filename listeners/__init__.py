"""What the outside says, turned into commands to a node: entries, ownership, nodes.

Listeners never change a job. All that they bring are hints; the sweeps find what they miss.
"""

from tenure.listeners.listening import listening

__all__ = ["listening"]
