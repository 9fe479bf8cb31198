"""Kernels in plain NumPy and Python: the oracle. Written to be checked by reading.

See ``innet.kernels`` for what each must do. They are slow wherever speed would cost clarity.
"""
