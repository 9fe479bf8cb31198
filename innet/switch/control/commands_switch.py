"""Commands of the switch as a whole, and those of simple_switch_CLI that mean nothing here."""

from __future__ import annotations

from innet.core.errors import ControlError
from innet.switch.control.command_table import Arguments, Handler, command, integer
from innet.switch.control.control_plane import ControlPlane
from innet.switch.control.values import number
from innet.switch.state.replication import MAX_PORT


@command("switch_info", "", 0, 0)
def _switch_info(control: ControlPlane, _: Arguments) -> str:
    major, minor = control.program.version
    return f"program: {control.program.name}\nversion of its JSON: {major}.{minor}"


@command("show_ports", "", 0, 0)
def _show_ports(_: ControlPlane, __: Arguments) -> str:
    return f"ports 0..{MAX_PORT - 1} are up"


@command("get_time_elapsed", "", 0, 0)
def _get_time_elapsed(control: ControlPlane, _: Arguments) -> str:
    return str(control.state.clock)


@command("get_time_since_epoch", "", 0, 0)
def _get_time_since_epoch(control: ControlPlane, _: Arguments) -> str:
    return str(control.state.clock)


def _queue(words: Arguments, what: str) -> str:
    """Accepted and without effect: nothing here waits in a queue."""
    bounds = ((what, 31), ("the port", 9), ("the priority", 3))
    for word, (name, width) in zip(words, bounds, strict=False):
        number(integer(word, name), width, name)
    return ""


@command("set_queue_depth", "PACKETS [PORT [PRIORITY]]", 1, 3)
def _set_queue_depth(_: ControlPlane, words: Arguments) -> str:
    return _queue(words, "the depth")


@command("set_queue_rate", "PACKETS_PER_SECOND [PORT [PRIORITY]]", 1, 3)
def _set_queue_rate(_: ControlPlane, words: Arguments) -> str:
    return _queue(words, "the rate")


_REMEDIES = {
    "reset_state": "load the program again",
    "load_new_config_file": "load the other program into a switch of its own",
    "swap_configs": "load the other program into a switch of its own",
    "write_config_to_file": "the program is the file that was loaded",
    "serialize_state": "copy Switch.state",
    "port_add": "all ports are there",
    "port_remove": "all ports are there",
    "shell": "run it in a shell",
}


def _refuse(name: str, remedy: str) -> Handler:
    def run(_: ControlPlane, __: Arguments) -> str:
        raise ControlError(f"{name} of simple_switch_CLI means nothing here: {remedy}")

    return run


for _name, _remedy in _REMEDIES.items():
    command(_name, "...", 0, None)(_refuse(_name, _remedy))
