"""`tenure bench`: what Tenure carries, how late, in how much memory; for anyone to measure. Every run verifies its sums."""

from tenure.bench.command import main

__all__ = ["main"]
