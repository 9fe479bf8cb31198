"""What people do with a compiled program: test it, replay captures, measure it, look inside.

One module per tool; ``innet.cli.switch`` is how they are typed.
"""
