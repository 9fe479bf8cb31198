"""Kernels in plain NumPy and Python: the oracle, written to be checked by reading.

See ``innet.kernels`` for what each must do. Clarity goes before speed.
"""
