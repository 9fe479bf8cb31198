"""``python -m innet``: the same as the command ``innet``."""

from innet.cli import main

main()
