"""The lines that simple_switch logs about packets, and those of the built-in switch."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import defaultdict
from pathlib import Path

from innet.bmv2.session import Session
from innet.switch import Switch
from support import fuzz, switch_cases

HEAD = re.compile(r"^\[[\d:.]+\] \[bmv2\] \[(\w)\] \[thread \d+\] ", re.MULTILINE)
_PREFIX = re.compile(r"LPM       ([0-9a-f]+)/(\d+)")
ABOUT = re.compile(r"\[(\d+\.\d+)\] \[cxt 0\] ")


def logging_switch():
    """A simple_switch whose log has lines about packets: ``simple_switch_logging`` on PATH."""
    return shutil.which("simple_switch_logging")


def _without_the_rest(found):
    """simple_switch also tells the bits of a key behind its prefix, which mean nothing."""
    value, length, prefix = int(found[1], 16), 4 * len(found[1]), int(found[2])
    return f"LPM       {value >> (length - prefix) << (length - prefix):0{len(found[1])}x}/{prefix}"


def by_packet(lines):
    """Lines (letter of the level, text) about packets, by packet and copy; and those about none.

    Threads of simple_switch log at the same time, so only the order of each packet is certain.
    """
    found, others = defaultdict(list), []
    for level, line in lines:
        text = _PREFIX.sub(_without_the_rest, line)
        about = ABOUT.match(text)
        if about is None:
            others.append(f"{level} {text}")
        else:
            found[about[1]].append(f"{level} {text[about.end() :]}")
    return dict(found), others


def parsed(text):
    """(letter of the level, text) of each line of a log; a line may have newlines in it."""
    parts = HEAD.split(text)[1:]
    return [
        (level, line.removesuffix("\n"))
        for level, line in zip(parts[::2], parts[1::2], strict=True)
    ]


def of_process(words, document, rounds, folder: Path, ports=range(8)):
    """The log of a switch process, started by ``words``, for ``rounds`` of (commands, packets).

    Packets come from files, one after the other.
    """
    folder.mkdir(exist_ok=True)
    script = folder / "switch"
    options = ["--log-file", str(folder / "log"), "--log-flush"]
    options += ["--log-file-max-size", str(1 << 30)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join([*words, *options])} "$@"\n')
    script.chmod(0o755)
    packets = [packet for _, some in rounds for packet in some]
    with Session(script, None, json.dumps(document), packets, ports=ports) as session:
        for commands, some in rounds:
            session.attempt(commands)
            for _ in some:
                session.play(1)
    return parsed((folder / "log.txt").read_text(errors="replace"))


def of_built_in(document, rounds, engine="interpret"):
    """The built-in switch's lines for the same."""
    switch = Switch.load(document, engine)
    lines = []
    switch.log_packets(
        document, lambda level, text: lines.append((level[0].upper(), text)), engine=engine
    )
    for commands, packets in rounds:
        for each in commands:
            try:
                switch.command(each)
            except Exception:  # refused by both
                continue
        for packet in packets:
            switch.process([packet])
    return lines


PROGRAMS = (
    "forward",
    "fuzz_clone",
    "fuzz_counters",
    "fuzz_digests",
    "fuzz_ends",
    "fuzz_hashes",
    "fuzz_loops",
    "fuzz_meters",
    "fuzz_multicast",
    "fuzz_parser",
    "fuzz_prefixes",
    "fuzz_priorities",
    "fuzz_profiles",
    "fuzz_registers",
    "fuzz_stacks",
    "fuzz_unions",
    "fuzz_varbit",
    "fuzz_wide",
    "switch_checksums",
    "switch_tables",
)
"""Programs whose lines are recorded."""

COMPILED = ("forward",)
"""Those of them whose packets machine code runs, while they are logged, in the first tier."""

_FORWARD = Path(__file__).parents[2] / "p4" / "examples" / "forward.json"


def document_of(name):
    if name == "forward":
        return json.loads(_FORWARD.read_text())
    return switch_cases.program(name)


def cases(count=12):
    """A program with rounds of commands and packets, for each of ``PROGRAMS``."""
    made = {}
    for name in PROGRAMS:
        if name == "forward":
            head = bytes.fromhex("020000000002 020000000001 88b5")
            lines = _FORWARD.with_suffix(".commands").read_text().splitlines()
            commands = [each for each in lines if each and not each.startswith("#")]
            rounds = [(commands, [(1, head + bytes(50)), (2, bytes(60)), (1, b"short")])]
        elif name.startswith("fuzz"):
            case = fuzz.make_case(name, 3, count, rounds=2)
            rounds = [([line for line, _ in each.commands], each.packets) for each in case.rounds]
        else:
            case = switch_cases.CASES[name]
            rounds = [(list(case.commands), case.packets()[:count])]
        # Great packets say nothing more.
        made[name] = document_of(name), [(c, [(p, d[:200]) for p, d in some]) for c, some in rounds]
    return made
