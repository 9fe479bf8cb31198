"""Commands of simple_switch_CLI that only a running switch has: its ports, its program, its state.

The others are in ``innet.switch.control.commands``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from innet.bmv2.control_plane import ThriftControlPlane
from innet.core.errors import ControlError


def _port_add(control: ThriftControlPlane, interface: str, port: str, capture: str = "") -> str:
    control.call("bm_dev_mgr_add_port", interface, _port(port), capture)
    return ""


def _port_remove(control: ThriftControlPlane, port: str) -> str:
    control.call("bm_dev_mgr_remove_port", _port(port))
    return ""


def _port(word: str) -> int:
    if not word.isdigit():
        raise ControlError(f"a port is a number, not {word!r}")
    return int(word)


def _load_new_config_file(control: ThriftControlPlane, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ControlError(f"{path} cannot be read: {error}") from None
    control.call("bm_load_new_config", text)
    return "loaded; swap_configs lets it run"


def _swap_configs(control: ThriftControlPlane) -> str:
    control.call("bm_swap_configs")
    return ""


def _write_config_to_file(control: ThriftControlPlane, path: str) -> str:
    return _write(path, control.call("bm_get_config"))


def _serialize_state(control: ThriftControlPlane, path: str) -> str:
    return _write(path, control.call("bm_serialize_state"))


def _write(path: str, text: str) -> str:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ControlError(f"{path} cannot be written: {error.strerror}") from None
    return ""


class ProcessCommand(NamedTuple):
    """A command that only a running switch has: what it takes, its help, and how it is run."""

    usage: str
    help: str
    run: Callable[..., str]

    def __call__(self, control: ThriftControlPlane, name: str, words: Sequence[str]) -> str:
        least = len([each for each in self.usage.split() if not each.startswith("[")])
        if not least <= len(words) <= len(self.usage.split()):
            raise ControlError(f"usage: {name} {self.usage}".rstrip())
        return self.run(control, *words)


PROCESS_COMMANDS = {
    "port_add": ProcessCommand("INTERFACE PORT [CAPTURE]", "Give a port an interface.", _port_add),
    "port_remove": ProcessCommand("PORT", "Take a port's interface away.", _port_remove),
    "load_new_config_file": ProcessCommand("FILE", "Load another program.", _load_new_config_file),
    "swap_configs": ProcessCommand("", "Let the program that was loaded run.", _swap_configs),
    "write_config_to_file": ProcessCommand(
        "FILE", "Write the program's JSON.", _write_config_to_file
    ),
    "serialize_state": ProcessCommand("FILE", "Write the state of the tables.", _serialize_state),
}
"""By name."""
