"""`tenure bench`: what Tenure carries, how late, in how much memory. Every run verifies its sums."""

from tenure.bench.command import main

__all__ = ["main"]
