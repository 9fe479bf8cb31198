"""Networks for P4 programs that are not innet's: a star or a topology file, and Mininet's CLI."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from innet import programs
from innet.core.errors import InputError
from innet.core.settings import SwitchKind
from innet.mininet.debian import Topo
from innet.mininet.files import FileTopo, limited
from innet.mininet.network import network, scratch
from innet.mininet.nodes import P4Host
from innet.mininet.topologies import SWITCHES
from innet.tools.files import open_document, program_in
from innet.wire import Endpoint

_PREFIX = 16


class ProgramStar(Topo):
    """Hosts h1, h2, ... at ports 1, 2, ... of switch s1, with the addresses of innet's workers."""

    def build(self, program: Path, hosts: int, switch: SwitchKind, **options: Any) -> None:
        """Called by Mininet's ``Topo``.

        Args:
            program: BMv2 JSON.
            hosts: how many.
            switch: which kind.
            options: arguments of the switch.
        """
        self.addSwitch("s1", cls=SWITCHES[switch], program=program, **options)
        all_hosts = {f"h{i + 1}": Endpoint.of_worker(i) for i in range(hosts)}
        for port, (name, own) in enumerate(all_hosts.items(), start=1):
            neighbors = {each.ip: each.mac for each in all_hosts.values() if each != own}
            self.addHost(
                name, cls=P4Host, ip=f"{own.ip}/{_PREFIX}", mac=own.mac, neighbors=neighbors
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
    """Bring a network up, let ``inspect`` look at it, and take it down.

    Args:
        program: P4, which p4c compiles, or BMv2 JSON, plain or compressed; None if the
            topology names its own.
        inspect: called with Mininet's network.
        topology: a file in the JSON of p4lang's tutorials; a star without one.
        hosts: of a star.
        switch: which kind all switches are.
        rules: a file of simple_switch_CLI's commands, for all switches.
        switch_options: arguments for all of them.

    Raises:
        InnetError: something is missing or cannot be used; everything is down again.
    """
    lines = () if rules is None else _lines(rules)
    with scratch() as folder:
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
            raise InputError("a star needs a program; name one with --p4.")
        else:
            topo = ProgramStar(ready, hosts, switch, commands=lines, **options)
        with network(topo, limited=topology is not None and limited(topology)) as net:
            inspect(net)


def compiled(program: Path, folder: Path) -> Path:
    """``program`` as plain BMv2 JSON in ``folder``.

    Raises:
        InputError: there is no such file.
        MissingToolError: it is P4, and there is no p4c.
        ProgramError: p4c refuses it, or it is no program.
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
