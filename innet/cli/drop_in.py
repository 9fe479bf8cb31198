"""``innet simple-switch`` and ``simple-switch-grpc`` in the place of BMv2's, and launchers."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.output import out
from innet.core.errors import InputError, MissingToolError, OutputError

_OURS = "#!/bin/sh\n# innet's"  # how launchers begin
_LAUNCHERS = {
    "simple_switch": "-m innet.simple_switch.start",
    "simple_switch_grpc": "-m innet.simple_switch.grpc_process",
    "simple_switch_CLI": "-m innet.bmv2.shell",
}


def simple_switch(context: typer.Context) -> None:
    """Run the built-in switch with simple_switch's options, interfaces and control plane.

    All options are simple_switch's: `innet simple-switch --help` lists them.
    """
    from innet.simple_switch.start import main

    raise typer.Exit(main(context.args))


def simple_switch_grpc(context: typer.Context) -> None:
    """Run the built-in switch with a P4Runtime server, as simple_switch_grpc.

    `innet simple-switch-grpc --help` lists its options beside those of simple_switch.
    """
    require_grpc()
    from innet.simple_switch.grpc_process import main

    raise typer.Exit(main(context.args))


def require_grpc() -> None:
    """Raise MissingToolError unless gRPC and protobuf are installed."""
    missing = [name for name in ("grpc", "google.protobuf") if not _is_installed(name)]
    if missing:
        raise MissingToolError(
            "grpcio and protobuf", "P4Runtime", "Get them by: pip install 'innet[p4runtime]'"
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def link_tools(
    *,
    into: Annotated[Path, typer.Option("--into", help="A folder, made if it is not there.")],
    force: Annotated[
        bool, typer.Option("--force", help="Write them even if they hide a real simple_switch.")
    ] = False,
) -> None:
    """Write launchers called simple_switch, simple_switch_grpc and simple_switch_CLI.

    Scripts that look for these names find them once the folder is first in PATH.
    """
    for name in _LAUNCHERS:
        real = shutil.which(name)
        there = into / name
        if there.exists() and not _is_ours(there):
            raise InputError(f"{there} exists, and is not innet's; choose another folder.")
        if real is not None and not force and not _is_ours(Path(real)) and _precedes(into, real):
            raise InputError(
                f"{into} comes before {real} in PATH, which innet's launcher would hide; --force "
                "does it all the same."
            )
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name, arguments in _LAUNCHERS.items():
            path = into / name
            python = shlex.quote(sys.executable)
            path.write_text(f'{_OURS} {name}\nexec {python} {arguments} "$@"\n', encoding="utf-8")
            path.chmod(0o755)
            out.print(str(path), highlight=False, soft_wrap=True)
    except OSError as error:
        raise OutputError.of(into, error) from None


def _is_ours(path: Path) -> bool:
    try:
        return path.read_text(encoding="utf-8").startswith(_OURS)
    except (OSError, UnicodeDecodeError):
        return False


def _precedes(folder: Path, real: str) -> bool:
    """Whether a folder of PATH is before that of a program."""
    places = [Path(each).resolve() for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    own, other = folder.resolve(), Path(real).parent.resolve()
    return own in places and places.index(own) < places.index(other)
