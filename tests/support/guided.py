"""Packets and entries made to fit a program: ``innet.tools.fuzz``, as the tests call it."""

from innet.tools.fuzz import Fuzzer, number

__all__ = ["Fuzzer", "number"]
