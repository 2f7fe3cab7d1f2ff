"""The command line. `main` is the `tenure` command; each command is a module that is imported when it is called."""

from tenure.cli.app import main

__all__ = ["main"]
