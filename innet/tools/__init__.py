"""Tools for a compiled program: run its tests, replay captures, measure it, look inside.

One module per tool; ``innet.cli.switch`` has their commands. Tools use the public interface of
``innet.switch`` alone, which the import rules check.
"""
