"""The demo and chaos: a cluster under load, whose nodes and members are killed, and the ledger of each message."""

from tenure.demo.course import DemoOptions, play
from tenure.demo.ledger import Ledger
from tenure.demo.shocks import ChaosOptions

__all__ = ["ChaosOptions", "DemoOptions", "Ledger", "play"]
