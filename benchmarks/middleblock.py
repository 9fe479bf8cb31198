"""Packets per second through SAI's middleblock: 10,000 routes, 500 ACL entries, WCMP.

    git clone https://github.com/smolkaj/4ward && cd 4ward
    p4c-bm2-ss -DPLATFORM_BMV2 -I . e2e_tests/sai_p4/instantiations/google/middleblock.p4 \
        -o middleblock.json
    python -m benchmarks.middleblock middleblock.json [--members 8] [--json]

The program is Google's (sonic-net/sonic-pins, in 4ward with its includes), and not part of innet.
Entries and packets are those of 4ward's benchmark (`p4runtime/DataplaneBenchmark.kt`): /32 routes
over 100 next hops, and ternary entries in two tables that no packet matches. Both engines, and
simple_switch where it is installed; what it answers has to be equal. 4ward's own figures are of
another machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.bmv2 import simple_switch
from innet.core.engines import EngineName
from innet.core.errors import MissingToolError
from innet.core.packets import PacketBatch
from innet.switch import Switch

PUBLISHED = (
    "4ward publishes 2,500 packets/s on one core and 29,000 in batches on 16 for L3 forwarding, "
    "2,000 and 13,000 for 16-way WCMP, of which it follows all ways, and 4,500 and 4,400 of "
    "simple_switch with its log (AMD Ryzen 9 7950X3D; docs/PERFORMANCE.md of smolkaj/4ward, "
    "commit c43a62b7)."
)
_NEXT_HOPS = 100
_NEIGHBOR = 1
_ROUTING = "ingress.routing_lookup"
_RESOLUTION = "ingress.routing_resolution"
_BATCH = 4096
_PLAYED = 20_000  # packets that simple_switch gets


def main(  # noqa: PLR0917 - options of a command
    program: Annotated[Path, typer.Argument(help="The middleblock, compiled by p4c-bm2-ss.")],
    routes: Annotated[int, typer.Option(help="IPv4 routes of 32 bits.")] = 10_000,
    entries: Annotated[
        int, typer.Option(help="Ternary entries, half in each of two tables.")
    ] = 500,
    members: Annotated[int, typer.Option(help="Of the WCMP group.")] = 8,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 5,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure both workloads, and print ratios first."""
    document = json.loads(program.read_text(encoding="utf-8"))
    packets = traffic(routes, 8 * _BATCH)
    for title, ways in (("L3 forwarding", 0), (f"{members}-way WCMP", members)):
        commands = [*control_plane(routes, ways), *access_lists(document, entries)]
        note = PUBLISHED
        few = packets.take(np.arange(_BATCH))
        rates = {
            "jit": _built_in(program, commands, packets, "jit", repeats),
            "interpret": _built_in(program, commands, few, "interpret", 1),
        }
        try:
            played = packets.take(np.arange(_PLAYED))
            answer = simple_switch.run(document, played.to_packets(), commands, ports=[1])
            rates[f"simple_switch {simple_switch.version()}"] = _PLAYED / answer.seconds
            _check(program, commands, played, answer.packets)
        except MissingToolError as error:
            note = f"{error} {note}"
        rows = [
            Row(name, rate, "packets/s", "34 bytes each", rates["jit"] / rate)
            for name, rate in rates.items()
        ]
        named = f"Middleblock, {title}, {routes:,} routes, {entries} ACL entries"
        show(named, "jit is", rows, as_json, note)


def control_plane(routes: int, members: int) -> Iterator[str]:
    """Commands for routes to 100 next hops, or with ``members`` to one group of them."""
    # Step 1: one interface and one neighbor, which all next hops share.
    yield (
        f"table_add {_RESOLUTION}.router_interface_table "
        f"{_RESOLUTION}.set_port_and_src_mac 1 => 1 0x001122334455"
    )
    yield (
        f"table_add {_RESOLUTION}.neighbor_table {_RESOLUTION}.set_dst_mac "
        f"1 {_NEIGHBOR} => 0x00aabbccddee"
    )
    for number in range(1, _NEXT_HOPS + 1):
        yield (
            f"table_add {_RESOLUTION}.nexthop_table {_RESOLUTION}.set_ip_nexthop "
            f"{number} => 1 {_NEIGHBOR}"
        )
    # Step 2: the group.
    selector = f"{_RESOLUTION}.wcmp_group_selector"
    if members:
        yield f"act_prof_create_group {selector}"
        for member in range(members):
            yield f"act_prof_create_member {selector} set_nexthop_id {1 + member % _NEXT_HOPS}"
            yield f"act_prof_add_member_to_group {selector} {member} 0"
        yield f"table_indirect_add_with_group {_RESOLUTION}.wcmp_group_table 1 => 0"
    # Step 3: the routes.
    for number in range(routes):
        action = f"{_ROUTING}.set_wcmp_group_id" if members else "set_nexthop_id"
        target = 1 if members else 1 + number % _NEXT_HOPS
        address = ".".join(str(byte) for byte in _address(number))
        yield f"table_add {_ROUTING}.ipv4_table {action} 0 {address}/32 => {target}"


def access_lists(document: dict[str, object], entries: int) -> Iterator[str]:
    """Commands for ternary entries that no packet matches."""
    tables = {
        "ingress.acl_ingress.acl_ingress_table": (
            "ingress.acl_ingress.acl_forward", {"src_ip": 16, "dst_ip": 17}, "",
        ),
        "ingress.acl_pre_ingress.acl_pre_ingress_table": (
            "ingress.acl_pre_ingress.set_vrf", {"dst_ip": 18}, "0",
        ),
    }  # fmt: skip
    keys = {
        table["name"]: [key["name"] for key in table["key"]]
        for table in document["pipelines"][0]["tables"]  # type: ignore[index]
    }
    for half, (name, (action, networks, parameter)) in enumerate(tables.items()):
        for number in range((entries + 1 - half) // 2):
            words = {
                field: f"{172 << 24 | network << 16 | number}&&&0xffffffff"
                for field, network in networks.items()
            }
            words["is_ipv4"] = "1&&&1"
            match = " ".join(words.get(key, "0&&&0") for key in keys[name])
            yield f"table_add {name} {action} {match} => {parameter} {number + 1}"


def _address(route: int) -> bytes:
    return bytes((10, *route.to_bytes(3, "big")))


def traffic(routes: int, count: int) -> PacketBatch:
    """``count`` frames of 34 bytes, to one route after another."""
    frames = np.zeros((count, 34), np.uint8)
    frames[:, :14] = np.frombuffer(bytes.fromhex("000102030405000a0b0c0d0e0800"), np.uint8)
    frames[:, 14:30] = np.frombuffer(
        bytes.fromhex("45000014000000004006") + bytes(2) + bytes((192, 168, 1, 1)), np.uint8
    )
    numbers = np.arange(count) % routes
    frames[:, 30:] = np.frombuffer(b"".join(map(_address, numbers.tolist())), np.uint8).reshape(
        -1, 4
    )
    words = frames[:, 14:].copy().view(">u2").astype(np.int64).sum(axis=1)
    words = (words & 0xFFFF) + (words >> 16)
    checksum = ((words & 0xFFFF) + (words >> 16)) ^ 0xFFFF
    frames[:, 24:26] = checksum.astype(">u2").view(np.uint8).reshape(count, 2)
    return PacketBatch.uniform(frames, np.zeros(count, np.int32))


def _loaded(program: Path, commands: list[str], engine: EngineName) -> Switch:
    switch = Switch.load(program, engine=engine)
    switch.commands("\n".join(commands))
    return switch


def _built_in(
    program: Path, commands: list[str], packets: PacketBatch, engine: EngineName, repeats: int
) -> float:
    """Packets per second: the best of ``repeats`` runs after one that warms up."""
    switch = _loaded(program, commands, engine)
    batches = [packets.take(np.arange(at, at + _BATCH)) for at in range(0, len(packets), _BATCH)]
    best = float("inf")
    for repeat in range(repeats + (repeats > 1)):
        begun = time.perf_counter()
        sent = sum(len(switch.process_batch(batch)) for batch in batches)
        if repeat or repeats == 1:
            best = min(best, time.perf_counter() - begun)
        assert sent == len(packets), f"{len(packets) - sent} packets were dropped"
    return len(packets) / best


def _check(
    program: Path, commands: list[str], packets: PacketBatch, answers: dict[int, list[bytes]]
) -> None:
    """The JIT's answers are simple_switch's."""
    ours: dict[int, list[bytes]] = {}
    for port, packet in _loaded(program, commands, "jit").process(packets.to_packets()):
        ours.setdefault(port, []).append(packet)
    answered = {port: sent for port, sent in answers.items() if sent}
    assert ours == answered, "simple_switch answers otherwise"


if __name__ == "__main__":
    typer.run(main)
