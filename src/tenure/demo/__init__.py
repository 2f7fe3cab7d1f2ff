"""The demo: a cluster under load, whose nodes and members are killed, and the ledger of each message."""

from tenure.demo.course import DemoOptions, play
from tenure.demo.ledger import Ledger

__all__ = ["DemoOptions", "Ledger", "play"]
