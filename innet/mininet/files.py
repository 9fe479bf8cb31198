"""Networks for P4 programs that are not innet's: a star, or a topology file of p4lang's tutorials.

    {"hosts": {"h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": ["..."]}},
     "switches": {"s1": {"runtime_json": "s1-runtime.json"}},
     "links": [["h1", "s1-p1"], ["s1-p2", "s2-p1", "5ms", 10]]}

The third and fourth elements of a link are its delay, which needs netem, and its rate in Mbit/s, at
most 1,000. A switch may run another program ("program": BMv2 JSON). Instead of runtime_json it may
have "cli_input": a file of simple_switch_CLI's commands. Files are searched in the topology file's
folder and in the folders above it, as the tutorials need it.

runtime_json is translated to commands of simple_switch_CLI. Source: p4lang/tutorials,
utils/p4runtime_lib/simple_controller.py.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from innet import programs
from innet.core.errors import ConfigError, InputError, UnknownNameError
from innet.core.packets import MAX_PORT
from innet.core.settings import Settings, SwitchKind, validate
from innet.mininet.debian import Topo
from innet.mininet.network import network, temporary_folder
from innet.mininet.nodes import P4Host
from innet.mininet.topologies import SWITCHES
from innet.tools.files import open_document, program_in
from innet.wire import Endpoint

_LARGEST_PRIORITY = 1 << 30
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE)
_FASTEST = 1000  # Mbit/s, the limit of Mininet's links
_PREFIX = 16


def commands(path: Path, program: Mapping[str, Any]) -> list[str]:
    """The commands of simple_switch_CLI for a runtime_json file.

    Args:
        path: a runtime_json file.
        program: BMv2 JSON of the switch's program, for the order of keys and parameters.

    Raises:
        ConfigError: the file cannot be read, or an entry is invalid.
        UnknownNameError: the program lacks a table, action, key or parameter.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        entries = document.get("table_entries", [])
        groups = document.get("multicast_group_entries", [])
        sessions = document.get("clone_session_entries", [])
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"cannot read {path}: {error}.") from None
    names = _Names(program)
    try:
        made = [names.table_command(entry) for entry in entries]
        made += _group_commands(groups)
        made += _session_commands(sessions)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnknownNameError):
            raise
        raise ConfigError(f"{path}: invalid entry: {type(error).__name__} {error}.") from None
    return made


class _Names:
    """Tables and actions of a program, by name."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        self.tables = {
            table["name"]: table for pipe in program["pipelines"] for table in pipe["tables"]
        }
        self.actions = {action["name"]: action for action in program["actions"]}

    def table_command(self, entry: Mapping[str, Any]) -> str:
        table = _known("table", str(entry["table"]), self.tables)
        name = str(entry["action_name"])
        action = _known("action", name, self.actions)
        given = dict(entry.get("action_params") or {})
        parameters = [
            _text(_take("parameter", each["name"], given, name)) for each in action["runtime_data"]
        ]
        _nothing_left("parameter", given, [each["name"] for each in action["runtime_data"]])
        if entry.get("default_action"):
            return " ".join(["table_set_default", table["name"], name, *parameters])
        match = dict(entry.get("match") or {})
        keys, ranked = [], False
        for key in table["key"]:
            kind = key["match_type"]
            ranked = ranked or kind in ("ternary", "range")
            value = match.pop(key["name"], None)
            keys.append(_key(kind, value, table["name"], key["name"]))
        _nothing_left("key", match, [key["name"] for key in table["key"]])
        words = ["table_add", table["name"], name, *keys, "=>", *parameters]
        if ranked:  # in P4Runtime the largest priority wins, in simple_switch_CLI the smallest
            words.append(str(_LARGEST_PRIORITY - int(entry.get("priority", 1))))
        return " ".join(words)


def _key(kind: str, value: Any, table: str, name: str) -> str:
    if kind == "exact" and value is not None:
        return _text(value)
    if kind == "lpm":
        prefix, length = value or (0, 0)
        return f"{_text(prefix)}/{int(length)}"
    if kind == "ternary":
        number, mask = value or (0, 0)
        return f"{_text(number)}&&&{_text(mask)}"
    if kind == "range" and value is not None:
        low, high = value
        return f"{_text(low)}->{_text(high)}"
    raise ValueError(f"table {table} needs a value for {name} ({kind})")


def _text(value: Any) -> str:
    """The value of a number, an IPv4 address or a MAC address."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{value!r} is neither a number nor an address")
    if isinstance(value, int):
        return str(value)
    if re.fullmatch(r"[0-9A-Fa-f]{1,2}(:[0-9A-Fa-f]{1,2}){5}", value):
        return "0x" + "".join(part.zfill(2) for part in value.split(":"))
    if re.fullmatch(r"\d+(\.\d+){3}", value):
        return str(int(ipaddress.IPv4Address(value)))
    return str(int(value, 0))


def _group_commands(groups: list[Mapping[str, Any]]) -> Iterator[str]:
    handle = 0
    for group in groups:
        number = int(group["multicast_group_id"])
        yield f"mc_mgrp_create {number}"
        for replica in group["replicas"]:
            yield f"mc_node_create {int(replica['instance'])} {int(replica['egress_port'])}"
            yield f"mc_node_associate {number} {handle}"
            handle += 1


def _session_commands(sessions: list[Mapping[str, Any]]) -> Iterator[str]:
    for session in sessions:
        for replica in session["replicas"]:
            yield f"mirroring_add {int(session['clone_session_id'])} {int(replica['egress_port'])}"


def _known(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def _take(kind: str, name: str, given: dict[str, Any], of: str) -> Any:
    if name not in given:
        raise ValueError(f"{of} needs the {kind} {name}")
    return given.pop(name)


def _nothing_left(kind: str, given: Mapping[str, Any], known: list[str]) -> None:
    for name in given:
        raise UnknownNameError(kind, name, known)


def _link(words: Any) -> tuple[Any, ...]:
    """A link of the file, checked."""
    if not isinstance(words, list) or not 2 <= len(words) <= 4:
        raise ValueError(
            'give ["NODE", "NODE", DELAY, RATE], of which the last two can be left out'
        )
    if not all(isinstance(end, str) for end in words[:2]):
        raise ValueError("its ends are names of nodes")
    delay = words[2] if len(words) > 2 else 0
    rate = words[3] if len(words) > 3 else _FASTEST
    if not isinstance(delay, str | int | float):
        raise ValueError('the delay must be a number of milliseconds, or a string such as "5ms"')
    if not (isinstance(rate, int | float) and 0 < rate <= _FASTEST):
        raise ValueError(f"the rate is a number of Mbit/s above 0, at most {_FASTEST}")
    return tuple(words)


def _address(text: str) -> str:
    """An IPv4 address, with or without a prefix length."""
    ipaddress.IPv4Interface(text)
    return text


def _mac(text: str) -> str:
    if not _MAC.fullmatch(text):
        raise ValueError("give a MAC address such as 08:00:00:00:01:11")
    return text


Address = Annotated[str, AfterValidator(_address)]
Mac = Annotated[str, AfterValidator(_mac)]
LinkWords = Annotated[tuple[Any, ...], PlainValidator(_link)]


class HostDescription(Settings):
    """A host: its address with prefix length, MAC address, and commands to run on it."""

    ip: Address | None = None
    mac: Mac | None = None
    commands: tuple[str, ...] = Field(default=(), strict=False)


class SwitchDescription(Settings):
    """A switch: its program, if the file names one, and its table entries."""

    program: str | None = None
    runtime_json: str | None = None
    cli_input: str | None = None
    mac: str | None = None


class TopologyFile(Settings):
    """The content of a topology file; see the module."""

    hosts: dict[str, HostDescription]
    switches: dict[str, SwitchDescription]
    links: tuple[LinkWords, ...] = Field(default=(), strict=False)


def load(path: Path) -> TopologyFile:
    """Read a topology.

    Raises:
        ConfigError: it cannot be read, or holds something invalid; names it.
        UnknownNameError: a link names an unknown host or switch.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the topology {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the topology {path} is no valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ConfigError(f"the topology {path} must be a JSON object with hosts and links.")
    found = validate(TopologyFile, document, source=str(path))
    taken: set[tuple[str, int]] = set()
    for link in found.links:
        for end in link[:2]:
            name, port = _end(found, end, path)
            if port is not None and (name, port) in taken:
                raise ConfigError(f"{path}: two links at {end}; a port has only one.")
            if port is not None:
                taken.add((name, port))
    return found


def _end(found: TopologyFile, word: str, path: Path) -> tuple[str, int | None]:
    """A node and its port, from "h1", "s1" or "s1-p2"."""
    if word in found.hosts or word in found.switches:
        return word, None
    name, dash, port = word.rpartition("-p")
    if dash and name in found.switches and port.isdigit():
        if int(port) > MAX_PORT:
            raise ConfigError(f"{path}: {word}: a switch has ports 0 to {MAX_PORT}.")
        return name, int(port)
    known = [*found.hosts, *found.switches]
    raise UnknownNameError("host or switch", word, known, of=f"the links of {path}")


class FileTopo(Topo):
    """The network that a topology file describes."""

    def build(
        self,
        path: Path,
        program: Path | None,
        *,
        switch: SwitchKind = "builtin",
        switch_options: Mapping[str, Any] | None = None,
        folder: Path | None = None,
        rules: tuple[str, ...] = (),
    ) -> None:
        """Called by Mininet's ``Topo``.

        Args:
            path: of the topology file.
            program: BMv2 JSON for switches without their own program.
            switch: the kind of all switches.
            switch_options: arguments for all of them.
            folder: for logs and sockets.
            rules: commands for all switches, run before those of the file.
        """
        found = load(path)
        for name, host in found.hosts.items():
            self.addHost(
                name,
                cls=P4Host,
                ip=host.ip,
                mac=host.mac,
                interface="eth0",
                commands=host.commands,
            )
        for name, each in found.switches.items():
            custom = program if each.program is None else beside(path, each.program)
            if custom is None:
                raise ConfigError(f"switch {name} of {path} has no program; give its file, too.")
            self.addSwitch(
                name,
                cls=SWITCHES[switch],
                program=custom,
                commands=(*rules, *_rules(path, each, custom)),
                folder=folder,
                **(switch_options or {}),
            )
        for link in found.links:
            (a, port_a), (b, port_b) = (_end(found, end, path) for end in link[:2])
            self.addLink(a, b, port1=port_a, port2=port_b, **_limits(link))


def limited(path: Path) -> bool:
    """Whether a link of the topology has a rate or a delay."""
    return any(_limits(link) for link in load(path).links)


def beside(path: Path, name: str) -> Path:
    """The file ``name`` in the topology file's folder, or in a folder above it.

    Raises:
        ConfigError: there is none.
    """
    for folder in path.resolve().parents:
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(f"{path} names {name}, which does not exist.")


def _rules(path: Path, switch: SwitchDescription, program: Path) -> list[str]:
    if switch.cli_input is not None:
        text = beside(path, switch.cli_input).read_text(encoding="utf-8-sig", errors="replace")
        return [line for line in text.splitlines() if line.partition("#")[0].strip()]
    if switch.runtime_json is None:
        return []
    document = open_document(program)
    program_in(document, program)  # a clear message, if it is invalid
    return commands(beside(path, switch.runtime_json), document)


def _limits(link: LinkWords) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if len(link) > 2 and link[2] not in (0, "0", "0ms"):
        options["delay"] = link[2] if isinstance(link[2], str) else f"{link[2]}ms"
    if len(link) > 3:
        options |= {"bw": float(link[3]), "use_tbf": True}
    return options


class ProgramStar(Topo):
    """Hosts h1, h2, ... at ports 1, 2, ... of switch s1, with the addresses of innet's workers."""

    def build(self, program: Path, hosts: int, switch: SwitchKind, **options: Any) -> None:
        """Called by Mininet's ``Topo``.

        Args:
            program: BMv2 JSON.
            hosts: how many.
            switch: the kind of switch.
            options: arguments of the switch.
        """
        self.addSwitch("s1", cls=SWITCHES[switch], program=program, **options)
        all_hosts = {f"h{i + 1}": Endpoint.of_worker(i) for i in range(hosts)}
        for port, (name, host) in enumerate(all_hosts.items(), start=1):
            neighbors = {each.ip: each.mac for each in all_hosts.values() if each != host}
            self.addHost(
                name, cls=P4Host, ip=f"{host.ip}/{_PREFIX}", mac=host.mac, neighbors=neighbors
            )
            self.addLink(name, "s1", port2=port)


def run(
    program: Path | None,
    inspect: Callable[[Any], None],
    *,
    topology: Path | None = None,
    hosts: int = 2,
    switch: SwitchKind = "builtin",
    rules: Path | None = None,
    switch_options: Mapping[str, Any] | None = None,
) -> None:
    """Start a network, call ``inspect``, and stop the network.

    Args:
        program: P4, which p4c compiles, or BMv2 JSON, plain or compressed; None if the topology
            names programs.
        inspect: called with Mininet's network.
        topology: a topology file as in p4lang's tutorials; by default a star.
        hosts: of a star.
        switch: the kind of all switches.
        rules: a file of simple_switch_CLI's commands, for all switches.
        switch_options: arguments for all of them.

    Raises:
        InnetError: something is missing or invalid. The network is stopped.
    """
    lines = () if rules is None else _lines(rules)
    with temporary_folder() as folder:
        ready = None if program is None else compiled(program, folder)
        options = {"folder": folder, **(switch_options or {})}
        if topology is not None:
            topo = FileTopo(
                topology,
                ready,
                switch=switch,
                switch_options=dict(switch_options or {}),
                folder=folder,
                rules=lines,
            )
        elif ready is None:
            raise InputError("a star needs a program; give its file.")
        else:
            topo = ProgramStar(ready, hosts, switch, commands=lines, **options)
        with network(topo, limited=topology is not None and limited(topology)) as net:
            inspect(net)


def compiled(program: Path, folder: Path) -> Path:
    """``program`` as plain BMv2 JSON in ``folder``.

    Raises:
        InputError: there is no such file.
        MissingToolError: it is P4, and p4c is not installed.
        ProgramError: p4c refuses it, or it is not a program.
    """
    if program.suffix == ".p4":
        document = programs.compile_p4(program)
    else:
        document = open_document(program)
        program_in(document, program)
    path = folder / f"{program.name.partition('.')[0]}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
    return tuple(line for line in text.splitlines() if line.partition("#")[0].strip())
