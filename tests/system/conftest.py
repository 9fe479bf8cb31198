"""Fixtures of the system tests."""

from support.fork_server import forked_programs
from support.mininet import nothing_left

__all__ = ["forked_programs", "nothing_left"]
