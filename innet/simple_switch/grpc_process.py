"""The built-in switch in the place of BMv2's simple_switch_grpc: simple_switch with P4Runtime.

    python -m innet.simple_switch.grpc_process --no-p4 -i 1@veth1 -- --cpu-port 255

Thrift and gRPC are served at once, as there; both change the same switch.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Sequence

# Compiling forks; gRPC's own handling of forks would stop its threads for it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC logs what it cannot do on standard error, before the error that names the remedy.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from innet.core.engines import EngineName
from innet.core.errors import InnetError, InputError, ProgramError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.p4runtime.server import P4RuntimeServer, Tls
from innet.simple_switch.log import Log
from innet.simple_switch.notifications import Notifications
from innet.simple_switch.open_sockets import OpenSockets
from innet.simple_switch.options import BMV2_VERSION, JSON_VERSION, SwitchOptions, options_of
from innet.simple_switch.process import SimpleSwitch, run
from innet.switch import Switch, load_program, unsupported
from innet.switch.state.ageing import IdleTimeout

DEFAULT_ADDRESS = "0.0.0.0:9559"

_REFUSED = {
    "--dp-grpc-server-addr": "packets do not come over gRPC; give interfaces by -i",
}


class SimpleSwitchGrpc(SimpleSwitch):
    """The switch process with a P4Runtime server: a ``server.Device``.

    Args:
        config, options, log, notifications, opened: as ``SimpleSwitch``.
        address: HOST:PORT of the gRPC server.
        tls: its certificates; None for none.
        cpu_port: the port whose packets go to controllers; None for none.

    Raises:
        InnetError: an argument cannot be used.
    """

    def __init__(
        self,
        config: str | None,
        options: SwitchOptions,
        log: Log,
        notifications: Notifications | None = None,
        opened: OpenSockets | None = None,
        *,
        address: str = DEFAULT_ADDRESS,
        tls: Tls | None = None,
        cpu_port: int | None = None,
    ) -> None:
        self.cpu_port = cpu_port
        self._p4runtime: P4RuntimeServer | None = None
        self._injected: list[bytes] = []
        super().__init__(config, options, log, notifications, opened)
        try:
            self._p4runtime = P4RuntimeServer(
                self, address, self._server.wake, tls=tls, log=self.log
            )
        except BaseException:
            self._close()
            raise
        self.grpc_port = self._p4runtime.port
        self.log("info", f"Server listening on {address.rpartition(':')[0]}:{self.grpc_port}")

    # ── What the P4Runtime server asks for ──

    def is_port_up(self, port: int) -> bool:
        return port == self.cpu_port or self._ports.is_up(port)

    def has_port(self, port: int) -> bool:
        return port == self.cpu_port or port in self._ports.interfaces

    def make_switch(self, config: str) -> Switch:
        try:
            program = load_program(json.loads(config)).with_drop_port(self.options.drop_port)
        except ValueError as error:
            raise ProgramError(f"that is no JSON: {error}") from None
        engine: EngineName = "jit" if unsupported(program, "interpret") else "interpret"
        return self._new_switch(program, engine)

    def install(self, switch: Switch, config: str) -> None:
        if self.switch is not None:
            self.switch.traffic_manager.clear()
        switch.state.clock = self._now() // 1000
        self._load(config, switch)

    def inject(self, packet: bytes) -> None:
        self._injected.append(packet)

    # ── Beside what a simple_switch does ──

    def _answer_calls(self) -> None:
        super()._answer_calls()
        if self._p4runtime is None:
            return
        self._p4runtime.run_calls()
        if self._injected:
            assert self.cpu_port is not None, "the server refuses packets without it"
            packets = [(self.cpu_port, data) for data in self._injected]
            self._injected.clear()
            self._forward(PacketBatch.from_packets(packets))

    def _timeout(self, poll: float) -> float:
        due = None if self._p4runtime is None else self._p4runtime.run_due()
        timeout = super()._timeout(poll)
        return timeout if due is None else min(timeout, due)

    def _send(self, leaving: PacketBatch) -> None:
        to_cpu = leaving.port == self.cpu_port if self.cpu_port is not None else None
        if to_cpu is None or not to_cpu.any():
            super()._send(leaving)
            return
        if self._p4runtime is not None:
            for row in to_cpu.nonzero()[0].tolist():
                data = leaving.data[row, : leaving.length[row]].tobytes()
                self._p4runtime.packet_in(data)
        super()._send(leaving.take(~to_cpu))

    def _notify(self) -> None:
        if self._p4runtime is not None and self.switch is not None:
            self._p4runtime.take_digests(list(self.switch.state.digests))
        super()._notify()

    def _idle(self, idle: IdleTimeout) -> None:
        super()._idle(idle)
        if self._p4runtime is not None:
            self._p4runtime.idle_entries(idle.table, idle.handles)

    def _port_changed(self, port: int, text: str, is_up: bool) -> None:
        super()._port_changed(port, text, is_up)
        if self._p4runtime is not None:
            self._p4runtime.ports_changed()

    def _close(self) -> None:
        if self._p4runtime is not None:
            self._p4runtime.close()
        super()._close()


# ----------------------------------------------------------------------------
# The command line.


def _parser() -> argparse.ArgumentParser:
    """The options that simple_switch does not have."""
    parser = argparse.ArgumentParser(
        prog="innet simple-switch-grpc",
        description="The built-in switch in the place of BMv2's simple_switch_grpc.",
        epilog="All options of simple_switch are taken, too: innet simple-switch --help.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--grpc-server-addr", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help=DEFAULT_ADDRESS)
    add("--grpc-server-ssl", action="store_true", help="TLS, with the files below")
    add("--grpc-server-cacert", default="", metavar="FILE", help="verifies clients' certificates")
    add("--grpc-server-cert", default="", metavar="FILE", help="the server's certificate")
    add("--grpc-server-key", default="", metavar="FILE", help="the server's key")
    add("--grpc-server-with-client-auth", action="store_true", help="clients need a certificate")
    add("--cpu-port", type=int, help="the port of packet-in and packet-out (1 to 510)")
    add("--disable-swap", action="store_true", help="the program stays, except over P4Runtime")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        for word in words:
            if (why := _REFUSED.get(word.partition("=")[0])) is not None:
                raise InputError(f"{word.partition('=')[0]}: {why}.")
        own, rest = _parser().parse_known_args([word for word in words if word != "--"])
        options = options_of(rest)
        if options.version:
            print(BMV2_VERSION)
        elif options.json_version:
            print(JSON_VERSION)
        else:
            if own.cpu_port is not None and not 0 < own.cpu_port <= MAX_PORT:
                raise InputError(f"--cpu-port {own.cpu_port}: it is 1 to {MAX_PORT}.")
            tls = None
            if own.grpc_server_ssl:
                tls = Tls(
                    own.grpc_server_cert,
                    own.grpc_server_key,
                    own.grpc_server_cacert,
                    own.grpc_server_with_client_auth,
                )
            options.enable_swap = options.enable_swap or not own.disable_swap
            make = functools.partial(
                SimpleSwitchGrpc, address=own.grpc_server_addr, tls=tls, cpu_port=own.cpu_port
            )
            run(options, make=make)
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
