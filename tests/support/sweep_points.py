"""Functions that sweeps run in their tests; processes import them by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

import innet

PARAMETERS = ("workers", "size", "codec", "network", "seed")


def all_reduce(workers=2, size=4096, codec="dense", network="100g", seed=0):
    """An all-reduce in simulated time; its report."""
    rng = np.random.default_rng(seed)
    gradients = [rng.standard_normal(size, np.float32) for _ in range(workers)]
    return innet.all_reduce(gradients, codec=codec, network=network, seed=seed)[1]


def product(a=1, b=1, folder=None, wait=0.0):
    """``a * b``, and who said so; each call leaves a file with that in ``folder``."""
    if folder is not None:
        called = len(list(Path(folder).glob(f"{a}-{b}-*")))
        Path(folder, f"{a}-{b}-{called}").write_text(str(os.getpid()))
    time.sleep(wait)
    return {"simulated": {"seconds": a * b}, "pid": os.getpid()}


def everything(a=1, b=1, c=0, d=0, seed=0):
    """A number whose digits are the settings."""
    return {"simulated": {"seconds": 1000 * a + 100 * b + 10 * c + d + seed}}


def killed_once(a=1, b=1, folder=None):
    """As ``product``; the first call with ``a`` of 2 and ``b`` of 1 kills its process."""
    if (a, b) == (2, 1) and not list(Path(folder).glob("2-1-*")):
        Path(folder, "2-1-killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return product(a, b, folder)


def always_killed(a=1, b=1):
    """As ``product``; calls with ``a`` of 2 kill their process."""
    if a == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return product(a, b)


def failing(a=1, b=1, folder=None):
    """As ``product``; raises for ``a`` of 2, and prints what is no answer."""
    print("this is not the answer")
    product(a, b, folder)
    if a == 2:
        raise RuntimeError("two is too much")
    return product(a, b)


def refusing(a=1, b=1, folder=None):
    """As ``product``; refuses ``a`` of 2."""
    product(a, b, folder)
    if a == 2:
        raise innet.core.errors.ConfigError("a is 2; give another.")
    return product(a, b)
