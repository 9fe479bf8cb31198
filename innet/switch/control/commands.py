"""Control commands as text, in the dialect of simple_switch_CLI.

One command per line; what it prints is returned. Unlike there, a value that is too wide and a
parameter too many are refused rather than cut.
"""

from __future__ import annotations

from innet.core.errors import ControlError, InputError, UnknownNameError
from innet.switch.control import commands_meters as _meters  # noqa: F401 - it registers commands
from innet.switch.control import commands_profiles as _profiles  # noqa: F401 - likewise
from innet.switch.control import commands_replication as _replication  # noqa: F401 - likewise
from innet.switch.control import commands_switch as _switch  # noqa: F401 - likewise
from innet.switch.control import commands_tables as _tables  # noqa: F401 - likewise
from innet.switch.control.command_table import COMMANDS, Arguments, command, integer, truth
from innet.switch.control.control_plane import ControlPlane
from innet.switch.engine import cell_value
from innet.switch.state.hashes import CrcParameters


def run(control: ControlPlane, line: str) -> str:
    """Run one command; an empty line or a comment (#) does nothing.

    Raises:
        InputError: it is no text.
        ControlError: it was refused, and nothing was changed.
    """
    if not isinstance(line, str):
        raise InputError(f"a command is a line of text, not {type(line).__name__}")
    words = line.split("#", 1)[0].split()
    if not words:
        return ""
    found = COMMANDS.get(words[0])
    if found is None:
        raise ControlError(str(UnknownNameError("command", words[0], COMMANDS)))
    arguments = words[1:]
    if len(arguments) < found.least or (found.most is not None and len(arguments) > found.most):
        raise ControlError(f"usage: {found.name} {found.usage}".rstrip())
    return found.handler(control, arguments)


def run_all(control: ControlPlane, text: str) -> str:
    """Run the lines of a text in order, up to the first that is refused.

    Raises:
        InputError: it is no text.
        ControlError: names the line; those before it stay in effect.
    """
    if not isinstance(text, str):
        raise InputError(f"commands are text, one on each line, not {type(text).__name__}")
    printed = []
    for position, line in enumerate(text.splitlines(), 1):
        try:
            printed.append(run(control, line))
        except ControlError as error:
            raise ControlError(f"line {position}: {line.strip()}: {error}") from error
    return "\n".join(each for each in printed if each)


# ── Registers and counters ──


@command("register_read", "REGISTER [INDEX]", 1, 2)
def _register_read(control: ControlPlane, words: Arguments) -> str:
    if len(words) == 1:
        array, cells = control.register(words[0])
        values = (cell_value(cells, index) for index in range(array.size))
        return f"{words[0]}= " + ", ".join(map(str, values))
    index = integer(words[1], "the index")
    return f"{words[0]}[{index}]= {control.register_read(words[0], index)}"


@command("register_write", "REGISTER INDEX VALUE", 3, 3)
def _register_write(control: ControlPlane, words: Arguments) -> str:
    index, value = integer(words[1], "the index"), integer(words[2], "the value")
    control.register_write(words[0], index, value)
    return ""


@command("register_reset", "REGISTER", 1, 1)
def _register_reset(control: ControlPlane, words: Arguments) -> str:
    control.register_reset(words[0])
    return ""


@command("counter_read", "COUNTER INDEX", 2, 2)
def _counter_read(control: ControlPlane, words: Arguments) -> str:
    index = integer(words[1], "the index")
    packets, size = control.counter_read(words[0], index)
    return f"{words[0]}[{index}]= ({size} bytes, {packets} packets)"


@command("counter_write", "COUNTER INDEX PACKETS BYTES", 4, 4)
def _counter_write(control: ControlPlane, words: Arguments) -> str:
    index, packets, size = (integer(word, "a counter") for word in words[1:])
    control.counter_write(words[0], index, packets, size)
    return ""


@command("counter_reset", "COUNTER", 1, 1)
def _counter_reset(control: ControlPlane, words: Arguments) -> str:
    control.counter_reset(words[0])
    return ""


# ── Parser value sets and hashes ──


@command("show_pvs", "", 0, 0)
def _show_pvs(control: ControlPlane, _: Arguments) -> str:
    return "\n".join(f"{each.name} {each.width} bits" for each in control.program.value_sets)


@command("pvs_add", "VALUE_SET VALUE", 2, 2)
def _pvs_add(control: ControlPlane, words: Arguments) -> str:
    control.value_set_add(words[0], words[1])
    return ""


@command("pvs_remove", "VALUE_SET VALUE", 2, 2)
def _pvs_remove(control: ControlPlane, words: Arguments) -> str:
    control.value_set_remove(words[0], words[1])
    return ""


@command("pvs_get", "VALUE_SET", 1, 1)
def _pvs_get(control: ControlPlane, words: Arguments) -> str:
    return "\n".join(hex(value) for value in sorted(control.value_set(words[0])[1]))


@command("pvs_clear", "VALUE_SET", 1, 1)
def _pvs_clear(control: ControlPlane, words: Arguments) -> str:
    control.value_set_clear(words[0])
    return ""


_CRC_USAGE = "CALCULATION POLYNOMIAL INITIAL FINAL_XOR REFLECT_DATA REFLECT_REMAINDER"


def _set_crc(control: ControlPlane, words: Arguments, width: int) -> str:
    polynomial, initial, final_xor = (integer(word, "a CRC parameter") for word in words[1:4])
    reflect_data, reflect_remainder = (truth(word) for word in words[4:6])
    control.set_crc(
        words[0],
        CrcParameters(width, polynomial, initial, final_xor, reflect_data, reflect_remainder),
    )
    return ""


@command("set_crc16_parameters", _CRC_USAGE, 6, 6)
def _set_crc16(control: ControlPlane, words: Arguments) -> str:
    return _set_crc(control, words, 16)


@command("set_crc32_parameters", _CRC_USAGE, 6, 6)
def _set_crc32(control: ControlPlane, words: Arguments) -> str:
    return _set_crc(control, words, 32)


@command("set_toeplitz_hash_key", "CALCULATION KEY", 2, 2)
def _set_toeplitz_key(control: ControlPlane, words: Arguments) -> str:
    try:
        key = bytes.fromhex(words[1])
    except ValueError:
        raise ControlError(f"{words[1]!r} is no key in hexadecimal digits") from None
    control.set_toeplitz_key(words[0], key)
    return ""
