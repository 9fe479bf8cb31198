"""Packets and entries made to fit a program: ``innet.switch.guided``, as the tests call it."""

from innet.switch.guided import Guide, number

__all__ = ["Guide", "number"]
