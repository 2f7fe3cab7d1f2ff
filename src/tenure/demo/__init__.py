"""The demo: a small cluster under load, whose nodes and members are killed, and the ledger of what became of each message."""

from tenure.demo.ledger import Ledger
from tenure.demo.course import DemoOptions, play

__all__ = ["DemoOptions", "Ledger", "play"]
