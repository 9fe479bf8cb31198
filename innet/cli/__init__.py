"""The command line: ``innet --help``."""

from innet.cli.app import main

__all__ = ["main"]
