"""The machine that an experiment ran on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Literal

from innet.records.report import Frozen


class Machine(Frozen):
    """Where a record was made: all that times depend on and Python can tell."""

    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    numba: str

    @classmethod
    def here(cls) -> Machine:
        """This machine. ``cores`` counts those that this process may use."""
        return cls(
            cpu=_cpu_name(),
            cores=len(os.sched_getaffinity(0)),
            system=f"{platform.system()} {platform.machine()}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            numpy=_version_of("numpy"),
            numba=_version_of("numba"),
        )


def _version_of(package: str) -> str:
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


# ----------------------------------------------------------------------------
# What a trained model is judged by.


class Metric(Frozen):
    """The number that an evaluation yields.

    Attributes:
        name: for people: "accuracy", "perplexity".
        unit: "share" of one, which people read in per cent, or a plain "number".
        higher_is_better: whether more is better.
    """

    name: str
    unit: Literal["share", "number"] = "share"
    higher_is_better: bool = True

    @property
    def factor(self) -> float:
        """From the number to what people read: 100 for a share, in per cent."""
        return 100.0 if self.unit == "share" else 1.0


ACCURACY = Metric(name="accuracy")
PERPLEXITY = Metric(name="perplexity", unit="number", higher_is_better=False)
HIT_RATE = Metric(name="hit rate at 10")
