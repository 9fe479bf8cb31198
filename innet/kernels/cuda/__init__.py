"""CUDA kernels, compiled by numba-cuda; ``innet.kernels.get("cuda")`` checks that they can run.

See ``innet.kernels`` for what each must do, and ``device`` for where arrays may be. Kernels are
compiled for the present GPU at first use.
"""
