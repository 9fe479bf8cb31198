"""Checks which optional tools, packages, privileges and kernel features are available."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from innet import programs
from innet.bmv2 import build
from innet.core.errors import InputError, MissingToolError
from innet.kernels import gpu

_SECONDS = 20.0
_P4_REPOSITORY = (
    "Ubuntu and Debian packages are in the repository that "
    "https://github.com/p4lang/p4c#installation describes; then: sudo apt install {package}."
)


@dataclass(frozen=True, slots=True)
class Dependency:
    """One dependency that innet can use.

    Attributes:
        name: its common name.
        present: whether it is installed and works.
        detail: its version, or the problem.
        purpose: what innet does with it.
        remedy: how to install it on Debian or Ubuntu.
    """

    name: str
    present: bool
    detail: str
    purpose: str
    remedy: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def findings() -> list[Dependency]:
    """All checks, the most common dependency first."""
    return [
        _check(
            "p4c",
            lambda: programs.p4c_version(programs.find_p4c()),
            "compiling P4 programs of your own (those that are shipped are compiled)",
            _P4_REPOSITORY.format(package="p4lang-p4c"),
        ),
        _check(
            "simple_switch",
            build.version,
            "running programs on BMv2 rather than on the built-in switch",
            _P4_REPOSITORY.format(package="p4lang-bmv2"),
        ),
        _check("Mininet", _mininet, "innet net", "sudo apt install mininet"),
        Dependency(
            "root",
            os.geteuid() == 0,
            "yes" if os.geteuid() == 0 else "no",
            "innet net: namespaces, interfaces and raw frames",
            "run the command with sudo, such as: sudo .venv/bin/innet net",
        ),
        *_kernel(),
        _package("torch", "gradients by PyTorch", "pip install 'innet[torch]'"),
        _package("matplotlib", "plots", "pip install 'innet[plot]'"),
        _package(
            "grpcio", "innet simple-switch-grpc", "pip install 'innet[p4runtime]'", module="grpc"
        ),
        _package(
            "pynng",
            "notifications of innet simple-switch over nanomsg",
            "pip install 'innet[notifications]'",
        ),
        _package(
            "prometheus_client", "innet switch serve --metrics", "pip install 'innet[metrics]'"
        ),
        _package(
            "tensorboard", "innet train --log tensorboard", "pip install 'innet[tensorboard]'"
        ),
        _package("distributed", "sweeps on a cluster (--scheduler)", "pip install 'innet[dask]'"),
        _check("CUDA", _cuda, "kernels on a GPU (kernels='cuda')", "pip install 'innet[cuda]'"),
    ]


def _check(name: str, find: Callable[[], str], purpose: str, remedy: str) -> Dependency:
    try:
        return Dependency(name, True, find(), purpose, remedy)
    except MissingToolError as error:
        return Dependency(name, False, f"missing: {error.what}", purpose, remedy)
    except InputError as error:  # it is installed, but does not work
        return Dependency(name, False, str(error), purpose, remedy)


def _package(name: str, purpose: str, remedy: str, module: str | None = None) -> Dependency:
    spec = importlib.util.find_spec(module or name)
    if spec is None or spec.origin is None:  # a folder of that name has no origin
        return Dependency(name, False, "not installed", purpose, remedy)
    try:
        detail = installed(name)
    except PackageNotFoundError:  # built by hand
        detail = "yes"
    return Dependency(name, True, detail, purpose, remedy)


def _mininet() -> str:
    from innet.mininet.debian import VERSION  # noqa: PLC0415 - raises where Mininet is missing

    if shutil.which("mnexec") is None:
        raise MissingToolError("mnexec", "innet net", "It is part of Mininet's package.")
    return str(VERSION)


def _cuda() -> str:
    if (error := gpu.missing()) is not None:
        raise error
    return "yes"


_FEATURES = {
    "veth": ("ip link add i0 type veth peer name i1", "links between nodes"),
    "tbf": ("tc qdisc add dev lo root tbf rate 1mbit burst 15000 latency 1ms", "--rate"),
    "htb": ("tc qdisc add dev lo root handle 5:0 htb default 1", "rates of Mininet's own options"),
    "netem": (
        "tc qdisc add dev lo root netem delay 1ms",
        "delay and loss by the kernel; innet's own faults (--loss) do without it",
    ),
}


def _kernel() -> list[Dependency]:
    """Features of the kernel, tested in a temporary network namespace."""
    found = []
    for name, (_, purpose) in _FEATURES.items():
        remedy = f"sudo modprobe {'' if name == 'veth' else 'sch_'}{name}, or another kernel"
        if os.geteuid() != 0:
            detail, present = "not known without root", False
            remedy = "run this as root to find out"
        elif shutil.which("unshare") is None or shutil.which("ip") is None:
            detail, present = "not known", False
            remedy = "sudo apt install iproute2 util-linux"
        else:
            present = has_feature(name)
            detail = "yes" if present else "no"
        found.append(Dependency(f"kernel: {name}", present, detail, purpose, remedy))
    return found


def has_feature(name: str) -> bool:
    """Whether the kernel has "veth", "tbf", "htb" or "netem". Without root it is False."""
    command, _ = _FEATURES[name]
    try:
        result = subprocess.run(  # noqa: S603 - a fixed command
            ["unshare", "--net", *command.split()],  # noqa: S607 - wherever the system has it
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0
