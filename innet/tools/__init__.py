"""Tools for compiled programs: packet tests, replay of captures, benchmarks, explanations.

There is one module per tool; ``innet.cli.switch`` has the commands. Tools use only the public
interface of ``innet.switch``, which the import rules check.
"""
