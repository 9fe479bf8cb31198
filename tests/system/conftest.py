"""Fixtures of the system tests."""

from support.mininet import nothing_left

__all__ = ["nothing_left"]
