"""The tree that ``innet switch explain`` draws from a document of ``innet.tools.explain``."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

from rich.text import Text
from rich.tree import Tree

from innet.cli.output import out
from innet.core.errors import InputError
from innet.core.numbers import nanoseconds
from innet.switch import Switch, ir, is_compiled
from innet.switch.trace import Event
from innet.tools.captures import merge
from innet.tools.files import Commands
from innet.tools.replay import Input, open_sources

Document = dict[str, Any]

_MOST_STATEMENTS = 12
_RUN = 4  # as many of a kind are shown as one


def tree(document: Document) -> Tree:
    """Everything in the document; long runs of like things are one line each."""
    root = Tree(Text(f"{document['name']}  (BMv2 JSON {document['version']})", style="bold"))
    _headers(root, document)
    _parser(root, document["parser"])
    for name in ("ingress", "egress"):
        _pipeline(root, name, document)
    _deparser(root, document)
    _state(root, document)
    _engines(root, document["engines"])
    return root


def _branch(parent: Tree, text: str, *, bold: bool = False) -> Tree:
    return parent.add(Text(text, style="bold" if bold else ""))


def _leaves(parent: Tree, lines: Iterable[str]) -> None:
    for line in lines:
        _branch(parent, line)


def _runs(
    items: Sequence[Document], like: Callable[[Document], object]
) -> Iterable[tuple[Document, Document, int]]:
    """(first, last, count) of neighbors that are alike; short runs one by one."""
    start = 0
    for end in range(1, len(items) + 1):
        if end < len(items) and like(items[end]) == like(items[start]):
            continue
        if end - start >= _RUN:
            yield items[start], items[end - 1], end - start
        else:
            yield from ((each, each, 1) for each in items[start:end])
        start = end


def _span(first: Document, last: Document, count: int) -> str:
    return first["name"] if count == 1 else f"{first['name']} .. {last['name']} ({count})"


# ── Headers ──


def _headers(root: Tree, document: Document) -> None:
    packet = [each for each in document["headers"] if not each["metadata"] and not each["stack"]]
    branch = _branch(root, f"headers ({len(document['headers'])} instances)", bold=True)
    for header in packet:
        union = f", of union {header['union']}" if header["union"] else ""
        name = f"{header['name']}: {header['type']}, {header['bits']} bits{union}"
        _leaves(_branch(branch, name), _fields(header["fields"]))
    types = {each["type"]: each for each in document["headers"]}
    for stack in document["stacks"]:
        kind = types[stack["type"]]
        name = f"{stack['name']}[{stack['size']}]: {stack['type']}, {kind['bits']} bits each"
        _leaves(_branch(branch, name), _fields(kind["fields"]))
    for union in document["unions"]:
        _branch(branch, f"union {union['name']}: {', '.join(union['members'].values())}")
    for stack in document["union_stacks"]:
        _branch(branch, f"{stack['name']}[{stack['size']}]: {stack['type']}")
    metadata = [each for each in document["headers"] if each["metadata"]]
    for header in metadata:
        _branch(branch, f"{header['name']}: metadata, {len(header['fields'])} fields")


def _fields(fields: Sequence[Document]) -> Iterable[str]:
    def like(field: Document) -> object:
        return [field[name] for name in ("width", "signed", "saturating", "variable")]

    for first, last, count in _runs(fields, like):
        kind = "int" if first["signed"] else "varbit" if first["variable"] else "bit"
        saturating = ", saturating" if first["saturating"] else ""
        position = f"at bit {first['offset']}{saturating}"
        yield f"{kind}<{first['width']}> {_span(first, last, count)} {position}"


# ── Parser ──


def _parser(root: Tree, parser: Document) -> None:
    branch = _branch(root, f"parser, from {parser['initial']}", bold=True)
    for state in parser["states"]:
        below = _branch(branch, f"state {state['name']}")
        _statements(below, state["statements"])
        if state["key"]:
            key = ", ".join(f"{part['source']} ({part['width']})" for part in state["key"])
            choice = _branch(below, f"select {key}")
            for each in state["transitions"]:
                values = each["value_set"] or ", ".join(each["values"])
                _branch(choice, f"{values} → {each['next']}")
            _branch(choice, f"default → {state['default']}")
        else:
            _branch(below, f"→ {state['default']}")


def _statements(parent: Tree, statements: Sequence[str]) -> None:
    _leaves(parent, statements[:_MOST_STATEMENTS])
    if len(statements) > _MOST_STATEMENTS:
        _branch(parent, f"... {len(statements) - _MOST_STATEMENTS} more statements (see --json)")


# ── Pipelines ──


def _pipeline(root: Tree, name: str, document: Document) -> None:
    pipeline = document[name]
    tables = {each["name"]: each for each in document["tables"]}
    actions = {each["name"]: each for each in document["actions"]}
    branch = _branch(root, f"{name}, from {pipeline['initial'] or 'its end'}", bold=True)
    for step in pipeline["steps"]:
        match step["kind"]:
            case "conditional":
                below = _branch(branch, f"{step['name']}: if ({step['condition']})")
                _branch(below, f"true → {step['true'] or 'end'}")
                _branch(below, f"false → {step['false'] or 'end'}")
            case "table":
                _table(branch, tables[step["name"]], actions)
            case _:
                below = _branch(branch, f"{step['name']}: {step['action']}()")
                _statements(below, actions[step["action"]]["statements"])
                _branch(below, f"→ {step['next'] or 'end'}")


def _table(parent: Tree, table: Document, actions: Document) -> None:
    if not table["keys"] and len(table["actions"]) == 1:  # what p4c makes of plain statements
        branch = _branch(parent, f"{table['name']}: {table['actions'][0]}()")
        _statements(branch, actions[table["actions"][0]]["statements"])
        _branch(branch, _next(table["next"]))
        return
    extras = [
        f"{what.replace('_', ' ')} {table[what]}"
        for what in ("counter", "meter", "action_profile")
        if table[what]
    ]
    kind = ", ".join([f"{table['match']}, {table['size']} entries", *extras])
    branch = _branch(parent, f"table {table['name']} ({kind})")
    for key in table["keys"]:
        mask = f" & {key['mask']}" if key["mask"] else ""
        name = "" if key["name"] == key["field"] else f" ({key['name']})"
        _branch(branch, f"key {key['field']}{mask}: {key['match']}, {key['width']} bits{name}")
    for name in table["actions"]:
        parameters = ", ".join(
            f"bit<{each['width']}> {each['name']}" for each in actions[name]["parameters"]
        )
        _statements(_branch(branch, f"action {name}({parameters})"), actions[name]["statements"])
    for entry in table["entries"]:
        match = ", ".join(entry["match"])
        _branch(branch, f"entry ({match}) priority {entry['priority']}: {entry['action']}")
    constant = "constant " if table["default_constant"] else ""
    _branch(branch, f"{constant}default {table['default'] or 'none'}")
    _branch(branch, _next(table["next"]))


def _next(after: str | Document | None) -> str:
    if isinstance(after, dict):
        return "→ " + ", ".join(f"{way}: {step or 'end'}" for way, step in after.items())
    return f"→ {after or 'end'}"


def _deparser(root: Tree, document: Document) -> None:
    branch = _branch(root, "deparser", bold=True)
    _statements(branch, document["deparser"]["statements"])
    _branch(branch, "emit " + (", ".join(document["deparser"]["order"]) or "nothing"))


# ── State and engines ──


def _state(root: Tree, document: Document) -> None:
    branch = Tree(Text("state", style="bold"))
    for first, last, count in _runs(
        document["registers"], lambda each: (each["size"], each["width"])
    ):
        size = f"{first['size']} cells of {first['width']} bits"
        _branch(branch, f"register {_span(first, last, count)}: {size}")
    for each in document["counters"]:
        table = f", of table {each['table']}" if each["table"] else ""
        _branch(branch, f"counter {each['name']}: {each['size']} cells{table}")
    for each in document["meters"]:
        table = f", of table {each['table']}" if each["table"] else ""
        _branch(branch, f"meter {each['name']}: {each['size']} cells, {each['unit']}{table}")
    for each in document["action_profiles"]:
        selector = each["selector"]
        how = (
            f", selects by {selector['algorithm']}({', '.join(selector['inputs'])})"
            if selector
            else ""
        )
        _branch(branch, f"action profile {each['name']}: {each['size']} members{how}")
    for each in document["value_sets"]:
        _branch(branch, f"value set {each['name']}: {each['width']} bits")
    for each in document["calculations"]:
        inputs = ", ".join(each["inputs"])
        _branch(branch, f"calculation {each['name']}: {each['algorithm']}({inputs})")
    for each in document["checksums"]:
        does = " and ".join(word for word in ("verify", "update") if each[word])
        condition = f" if {each['condition']}" if each["condition"] else ""
        _branch(branch, f"checksum {each['target']}: {does} {each['calculation']}{condition}")
    for kind in ("field_lists", "learn_lists"):
        for each in document[kind]:
            what = f"{kind[:-1].replace('_', ' ')} {each['id']}"
            _branch(branch, f"{what} {each['name']}: {', '.join(each['elements'])}")
    if branch.children:
        root.add(branch)


def _engines(root: Tree, engines: Document) -> None:
    branch = _branch(root, "engines", bold=True)
    for name, engine in engines.items():
        refused = engine["refused"]
        if refused:
            _leaves(_branch(branch, f"{name} refuses the program"), refused)
            continue
        below = _branch(branch, f"{name} runs the program")
        for loop in engine.get("loops", ()):
            over = ", ".join([*loop["registers"], *loop["fields"]])
            _branch(below, f"a loop of {loop['count']} in {loop['region']}: {over or 'constants'}")


# ----------------------------------------------------------------------------
# What ``innet switch explain --trace`` shows: packets on their way, event by event.

_STARTS = ("ingress", "parse_clone", "egress")
_DEEPER = ("field", "set_valid", "set_invalid", "log")
_STYLES = {"sent": "green", "drop": "red"}


def show(
    program: ir.Program,
    packets: Sequence[str],
    capture: Input | None,
    commands: Commands,
    priority_queues: int = 1,
    *,
    timed: bool = False,
    as_json: bool,
) -> None:
    """Run packets one by one and print their steps; ageing sweeps that are due run before a packet.

    The JSON output has one document per packet, each on a separate line. With ``timed``, or if a
    packet has a time, packets wait in the egress queues. The steps of a packet are then shown in
    several parts, one for each time.

    Raises:
        InputError: nothing to trace, a packet that is not PORT:HEX[@TIME], or a capture without
            packets.
        ControlError: a command was refused.
    """
    if not packets and capture is None:
        raise InputError("nothing to trace: name a --packet PORT:HEX or a --pcap FILE.")
    stated = [_packet(text) for text in packets]
    # Where machine code is there it records the same steps, and many packets take less time.
    is_there = is_compiled(program) and is_compiled(program, logged=True)
    switch = Switch(program, "jit" if is_there else "interpret", priority_queues=priority_queues)
    commands.run(switch)
    if timed or any(each.time is not None for each in stated):
        parts = _timed_parts(switch, stated, capture)
    else:
        parts = _parts(switch, stated, capture)
    for number, time, told in parts:
        idle = switch.take_idle_timeouts()
        if as_json:
            document: Document = {"packet": number, "events": [each.as_dict() for each in told]}
            if time is not None:
                document["time"] = time
            if idle:
                document["idle_timeouts"] = [each._asdict() for each in idle]
            print(json.dumps(document))
        else:
            for each in idle:
                out.print(str(each), highlight=False, markup=False, soft_wrap=True)
            _print(number, time, told)


class _Packet(NamedTuple):
    """A packet to trace; ``time``: when it arrives, in nanoseconds, where that is said."""

    port: int
    data: bytes
    time: int | None


_Part = tuple[int, int | None, list[Event]]
"""What happened to a packet of that number, at that time."""


def _parts(switch: Switch, stated: Sequence[_Packet], capture: Input | None) -> Iterator[_Part]:
    for number, packet in enumerate(chain(stated, _captured(capture))):
        if packet.time is not None:
            switch.state.clock = packet.time // 1000
        yield number, None, switch.trace(packet.port, packet.data)


def _timed_parts(
    switch: Switch, stated: Sequence[_Packet], capture: Input | None
) -> Iterator[_Part]:
    """The same in time: a packet without one comes at the same time as the one before it."""
    times = accumulate((each.time or 0 for each in stated), max)
    ordered = [each._replace(time=time) for each, time in zip(stated, times, strict=True)]
    if any(each.time not in (None, time.time) for each, time in zip(stated, ordered, strict=True)):
        raise InputError("--packet: state packets in the order of their times.")
    for packet in heapq.merge(ordered, _captured(capture), key=lambda each: each.time or 0):
        yield from _apart(switch.trace(packet.port, packet.data, time=packet.time))
    yield from _apart(switch.trace_until())


def _apart(told: list[Event]) -> Iterator[_Part]:
    for (packet, time), events in groupby(told, lambda event: (event.packet, event.time)):
        yield packet or 0, time, list(events)


def _packet(text: str) -> _Packet:
    stated, at, time = text.partition("@")
    port, colon, digits = stated.partition(":")
    try:
        if not colon or not port.strip().isdecimal():
            raise ValueError
        data = bytes.fromhex(digits)
    except ValueError:
        raise InputError(
            f"--packet {text[:60]}: write it as PORT:HEX or PORT:HEX@TIME, such as 0:0a0b0c or "
            "0:0a0b0c@1.5ms."
        ) from None
    return _Packet(
        int(port), data, nanoseconds(time, f"the time of --packet {text[:60]}") if at else None
    )


def _captured(capture: Input | None) -> Iterator[_Packet]:
    """The packets of a capture, the first of which comes at 0."""
    if capture is None:
        return
    with open_sources([capture]) as sources:
        first: int | None = None
        for timed in merge(sources, 256):
            for packet, time in zip(timed.packets.to_packets(), timed.clock.tolist(), strict=True):
                first = time if first is None else first
                yield _Packet(*packet, time - first)


def _print(number: int, time: int | None, told: list[Event]) -> None:
    when = "" if time is None else f" at {time:,} ns"
    out.print(f"packet {number}{when}", style="bold", highlight=False)
    for event in told:
        deeper = event.kind in _DEEPER or event.kind.startswith("request_")
        depth = 1 if event.kind in _STARTS else 3 if deeper else 2
        style = _STYLES.get(event.kind)
        line = "  " * depth + str(event)
        out.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
