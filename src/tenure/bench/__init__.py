"""`tenure bench`: what Tenure carries, how late and how much memory, measured anew by anyone. Every run verifies its sums."""

from tenure.bench.command import main

__all__ = ["main"]
