"""The options of ``innet simple-switch``: those of simple_switch, and a few of its own."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from innet.core.errors import InnetError, InputError, ProgramError
from innet.core.packets import MAX_PORT
from innet.simple_switch.log import LEVELS, MOST_BYTES, MOST_FILES
from innet.switch import ir
from innet.tools.files import open_document

BMV2_VERSION = "1.15.5"
"""The version of simple_switch whose answers this gives."""

JSON_VERSION = "2.24"
MOST_GROUPS = 4096
"""Multicast groups, and nodes, by default."""

_REFUSED = {
    "--debugger": "there is no debugger; `innet switch explain` and Switch.trace tell every step",
    "--debugger-addr": "there is no debugger; Switch.trace tells every step of a packet",
    "--restore-state": "state files are not read; send the commands again",
    "--load-modules": "there are no modules of externs; v1model's own are built in",
}


@dataclass(frozen=True, slots=True)
class PacketInput:
    """Where packets come from if not from interfaces: at most one of these.

    Attributes:
        files: seconds to wait before capture files are read.
        messages: nanomsg address.
    """

    files: float | None = None
    messages: str | None = None


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """What a switch process is started with, besides its program.

    Attributes:
        interfaces: by port.
        thrift_port: TCP port of the control plane; 0 takes a free one.
        device_id: as simple_switch's option.
        captures: folder for captures of the interfaces; None for none.
        priority_queues: egress queues per port.
        enable_swap: another program may be loaded while it runs.
        engine: "auto" begins with the interpreter where the program is not compiled yet; "jit"
            waits for the compiler.
        seed: of the program's random().
        threads: how many forward, where the program allows it; None: as many as the machine has
            for it.
        packets: where they come from if not from interfaces.
        drop_port: what egress_spec is of a packet that is to be dropped.
        dumped: how many bytes of each packet that comes or goes are logged.
        most_groups, most_nodes: of multicast.
    """

    interfaces: Mapping[int, str] = field(default_factory=dict)
    thrift_port: int = 9090
    device_id: int = 0
    captures: Path | None = None
    priority_queues: int = 1
    enable_swap: bool = False
    engine: str = "auto"
    seed: int = 0
    threads: int | None = None
    packets: PacketInput = PacketInput()
    drop_port: int = ir.DROP_PORT
    dumped: int = 0
    most_groups: int = MOST_GROUPS
    most_nodes: int = MOST_GROUPS

    @classmethod
    def of(cls, options: argparse.Namespace) -> SwitchOptions:
        """Those of a command line, which ``options_of`` parsed.

        Raises:
            InputError: there is no such folder or interface, or there are too many interfaces.
        """
        if options.pcap is not None and not Path(options.pcap).is_dir():
            raise InputError(f"--pcap={options.pcap}: there is no such folder.")
        interfaces = {} if options.packet_in is not None else interfaces_of(options.interface)
        if len(interfaces) > options.max_port_count:
            raise InputError(
                f"--max-port-count {options.max_port_count} is less than the {len(interfaces)} "
                "interfaces given by -i."
            )
        return cls(
            interfaces=interfaces,
            thrift_port=options.thrift_port,
            device_id=options.device_id,
            captures=None if options.pcap is None else Path(options.pcap),
            priority_queues=options.priority_queues,
            enable_swap=options.enable_swap or options.no_p4,
            engine=options.engine,
            seed=options.seed,
            threads=options.threads,
            packets=PacketInput(options.use_files, options.packet_in),
            drop_port=options.drop_port,
            dumped=options.dump_packet_data,
            most_groups=options.max_mc_groups,
            # A node is an entry at both levels.
            most_nodes=min(options.max_l1_entries, options.max_l2_entries),
        )


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """simple_switch's options; those of the target may stand behind ``--``, as there.

    As there, the first word that is no option is the program. ``ignored`` holds the others.

    Raises:
        InputError: an option that does not work here, named with what to do instead.
    """
    words = [word for word in arguments if word != "--"]
    for word in words:
        if (why := _REFUSED.get(word.partition("=")[0])) is not None:
            raise InputError(f"{word.partition('=')[0]}: {why}.")
    parser = argparse.ArgumentParser(
        prog="innet simple-switch",
        description="The built-in switch in the place of BMv2's simple_switch.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("program", nargs="?", help="JSON from p4c, or a program's name such as slots-32")
    add("-i", "--interface", action="append", default=[], metavar="PORT@NAME", help="repeatable")
    add("--no-p4", action="store_true", help="start without a program; needs --enable-swap")
    add("--pcap", nargs="?", const=".", metavar="DIR", help="captures of all interfaces")
    add("--use-files", type=_seconds, metavar="N", help="packets of NAME_in.pcap, after N s")
    add("--packet-in", metavar="ADDRESS", help="packets over nanomsg, in place of interfaces")
    add("--thrift-port", type=int, default=9090, help="of the control plane (9090)")
    add("--device-id", type=int, default=0, help="names the device in notifications (0)")
    add("--log-console", action="store_true", help="log to standard output")
    add("--log-file", metavar="FILE", help="log to FILE.txt")
    add("-L", "--log-level", choices=LEVELS, default="trace", help="least level (trace)")
    add("--log-flush", action="store_true", help="write each line of --log-file at once")
    add("--log-file-max-size", type=int, default=MOST_BYTES, help="bytes of a log file (5 MiB)")
    add("--log-file-max-files", type=int, default=MOST_FILES, help="older log files kept (3)")
    add("--dump-packet-data", type=int, default=0, metavar="BYTES", help="of each packet, logged")
    add("--notifications-addr", metavar="ADDRESS", help="nanomsg address of notifications")
    add("--nanolog", metavar="ADDRESS", help="taken, as p4-utils gives it; no events are sent")
    add("--max-port-count", type=int, default=512, help="most interfaces (512)")
    add("-v", "--version", action="store_true", help="simple_switch's version")
    add("--json-version", action="store_true", help="the newest version of JSON")
    target = parser.add_argument_group("options of the target, also behind --")
    add = target.add_argument
    add("--enable-swap", action="store_true", help="programs may be swapped at run time")
    add("--drop-port", type=int, default=511, help="egress_spec that means drop (511)")
    add("--priority-queues", type=int, default=1, help="egress queues per port (1)")
    add("--max-mc-groups", type=int, default=MOST_GROUPS, help="multicast groups (4096)")
    add("--max-l1-entries", type=int, default=MOST_GROUPS, help="multicast nodes (4096)")
    add("--max-l2-entries", type=int, default=2 * MOST_GROUPS, help="likewise (8192)")
    extra = parser.add_argument_group("options that simple_switch does not have")
    extra.add_argument(
        "--engine",
        choices=("auto", "jit", "interpret"),
        default="auto",
        help="auto: the interpreter until the program is compiled",
    )
    extra.add_argument("--seed", type=int, default=0, help="of the program's random() (0)")
    extra.add_argument(
        "--threads",
        type=int,
        choices=range(1, 65),
        metavar="NUMBER",
        help="threads that forward, if packets share no state (one for each four processors)",
    )
    options, others = parser.parse_known_args(_with_pcap(words))
    if any(word.startswith("-") for word in others):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if options.no_p4 and options.program is not None:
        others.insert(0, options.program)
        options.program = None
    options.ignored = others
    return options


def _seconds(word: str) -> int:
    """A whole number of seconds; as in simple_switch a negative one is 0."""
    return max(0, int(word))


def _with_pcap(words: Sequence[str]) -> Iterator[str]:
    """``--pcap`` without a folder means this one. Its folder stands behind a ``=`` or is the next
    word; simple_switch takes any next word for it, also the program, which is never intended.
    """
    following = iter([*words[1:], ""])
    taken = False
    for word, then in zip(words, following, strict=True):
        if taken:
            taken = False
        elif word == "--pcap":
            taken = Path(then).is_dir() if then else False
            yield f"--pcap={then if taken else '.'}"
        else:
            yield word


def interfaces_of(given: Sequence[str]) -> dict[int, str]:
    """Port -> interface, from arguments such as "1@s1-eth1"; InputError for any other."""
    interfaces: dict[int, str] = {}
    for word in given:
        port, at, name = word.partition("@")
        if not (at and name and port.isdigit()):
            raise InputError(f"--interface {word}: write it as PORT@NAME, such as 1@s1-eth1.")
        if int(port) > MAX_PORT:
            raise InputError(f"--interface {word}: a switch has ports 0 to {MAX_PORT}.")
        if int(port) in interfaces:
            raise InputError(f"--interface {word}: port {port} has an interface already.")
        interfaces[int(port)] = name
    return interfaces


def config_of(name: str) -> str:
    """The JSON of a program, as it is in its file if that is not compressed."""
    try:
        document = open_document(name)  # errors name the file
    except InnetError as error:
        if "@" not in name:
            raise
        raise ProgramError(f"{str(error).rstrip('.')}{hint_of_interface(name)}.") from None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(name).read_text(encoding="utf-8")
    return json.dumps(document)


def hint_of_interface(words: str) -> str:
    """What words without a meaning may have been meant as, if they look like interfaces."""
    return ". Each interface needs an -i of its own: -i PORT@NAME" if "@" in words else ""


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that have no meaning, or none together, by an InputError."""
    if not 0 <= options.drop_port <= ir.DROP_PORT:
        raise InputError(f"--drop-port {options.drop_port}: egress_spec is 0 to {ir.DROP_PORT}.")
    if options.use_files is not None and options.packet_in is not None:
        raise InputError("--use-files and --packet-in exclude each other.")
    if options.log_console and options.log_file is not None:
        raise InputError("--log-console and --log-file exclude each other.")
    if options.dump_packet_data < 0:
        raise InputError("--dump-packet-data is a number of bytes, at least 0.")
    for name in ("max_mc_groups", "max_l1_entries", "max_l2_entries"):
        if (most := getattr(options, name)) < 1:
            raise InputError(f"--{name.replace('_', '-')} {most}: it is at least 1.")
    if options.log_file_max_size <= 0 or options.log_file_max_files < 0:
        raise InputError("--log-file-max-size is at least 1, and --log-file-max-files at least 0.")
