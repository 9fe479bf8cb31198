"""CPU kernels, compiled by Numba for one thread; workers run in parallel instead.

Kernels release the GIL, so that one process can run the kernels of several workers at a time
(``innet.core.threads``). Results do not depend on the number of threads.

See ``innet.kernels`` for what each must do. Compiled code is cached on disk.
"""
