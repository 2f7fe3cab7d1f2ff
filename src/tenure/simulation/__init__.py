"""The simulation: clusters under every hazard of a grid, in virtual time, each from one seed, judged from outside."""

from tenure.simulation.command import main

__all__ = ["main"]
