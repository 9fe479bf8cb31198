"""CUDA kernels, compiled by numba-cuda; ``innet.kernels.get("cuda")`` checks that they can run.

See ``innet.kernels`` for what each must do, and ``device`` for where arrays may lie. Compiled at
first use for the GPU that is there.
"""
