"""CPU kernels, compiled by Numba for one thread: the workers are the parallelism.

While a kernel runs, other threads of Python do, too: one process can run several workers' kernels
at a time (``innet.core.threads``), and what each computes does not depend on how many.

See ``innet.kernels`` for what each must do. Compiled code is cached on disk.
"""
