"""The command line: parses, calls, prints."""

from fedkl.cli.main import main

__all__ = ["main"]
