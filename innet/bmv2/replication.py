"""Commands of multicast groups, mirror sessions, queues, value sets and CRCs for simple_switch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from innet.bmv2.runtime import Runtime, command
from innet.core.errors import ControlError
from innet.switch.control.command_table import Arguments, integer, truth
from innet.switch.control.values import inside, number
from innet.switch.state.replication import MAX_LAG, MAX_PORT

# ── Multicast groups ──


def _map(numbers: Iterable[int]) -> str:
    """A set of small numbers as it travels: a digit 1 for each, 0 being the last digit."""
    found = set(numbers)
    return "".join("1" if each in found else "0" for each in range(max(found, default=-1), -1, -1))


def _ports(words: Arguments) -> str:
    return _map(inside(integer(word, "a port"), MAX_PORT, "the ports") for word in words)


def _ports_and_lags(words: Arguments) -> tuple[str, str]:
    split = words.index("|") if "|" in words else len(words)
    lags = [integer(word, "a lag") for word in words[split + 1 :]]
    return _ports(words[:split]), _map(inside(lag, MAX_LAG + 1, "the lags") for lag in lags)


@command("mc_mgrp_create")
def _mc_mgrp_create(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_mc_mgrp_create", integer(words[0], "the group"))
    return ""


@command("mc_mgrp_destroy")
def _mc_mgrp_destroy(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_mc_mgrp_destroy", integer(words[0], "the group"))
    return ""


@command("mc_node_create")
def _mc_node_create(switch: Runtime, words: Arguments) -> str:
    rid = integer(words[0], "the replication id")
    handle = switch.standard("bm_mc_node_create", rid, *_ports_and_lags(words[1:]))
    return f"node was created with handle {handle}"


@command("mc_node_update")
def _mc_node_update(switch: Runtime, words: Arguments) -> str:
    node = integer(words[0], "the node")
    switch.standard("bm_mc_node_update", node, *_ports_and_lags(words[1:]))
    return ""


@command("mc_node_associate")
def _mc_node_associate(switch: Runtime, words: Arguments) -> str:
    group, node = integer(words[0], "the group"), integer(words[1], "the node")
    switch.standard("bm_mc_node_associate", group, node)
    return ""


@command("mc_node_dissociate")
def _mc_node_dissociate(switch: Runtime, words: Arguments) -> str:
    group, node = integer(words[0], "the group"), integer(words[1], "the node")
    switch.standard("bm_mc_node_dissociate", group, node)
    return ""


@command("mc_node_destroy")
def _mc_node_destroy(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_mc_node_destroy", integer(words[0], "the node"))
    return ""


@command("mc_set_lag_membership")
def _mc_set_lag_membership(switch: Runtime, words: Arguments) -> str:
    lag = inside(integer(words[0], "the lag"), MAX_LAG + 1, "the lags")
    switch.standard("bm_mc_set_lag_membership", lag, _ports(words[1:]))
    return ""


@command("mc_dump")
def _mc_dump(switch: Runtime, _: Arguments) -> str:
    found = json.loads(switch.standard("bm_mc_get_entries"))
    nodes = {each["handle"]: each for each in found["l1_handles"]}
    places = {each["handle"]: each for each in found["l2_handles"]}
    lines = []
    for group in sorted(found["mgrps"], key=lambda each: int(each["id"])):
        copies = []
        for handle in group["l1_handles"]:
            node = nodes[handle]
            place = places[node["l2_handle"]]
            copies += [f"port {port} rid {node['rid']}" for port in place["ports"]]
            copies += [f"lag {lag} rid {node['rid']}" for lag in place.get("lags", ())]
        lines.append(f"group {group['id']}: " + ", ".join(copies))
    return "\n".join(lines)


# ── Mirror sessions ──


@command("mirroring_add")
def _mirroring_add(switch: Runtime, words: Arguments) -> str:
    session, port = integer(words[0], "the session"), integer(words[1], "the port")
    switch.call("mirroring_session_add", session, {"port": port})
    return ""


@command("mirroring_add_mc")
def _mirroring_add_mc(switch: Runtime, words: Arguments) -> str:
    session, group = integer(words[0], "the session"), integer(words[1], "the group")
    switch.call("mirroring_session_add", session, {"group": group})
    return ""


@command("mirroring_delete")
def _mirroring_delete(switch: Runtime, words: Arguments) -> str:
    switch.call("mirroring_session_delete", integer(words[0], "the session"))
    return ""


@command("mirroring_get")
def _mirroring_get(switch: Runtime, words: Arguments) -> str:
    found: dict[str, Any] = switch.call("mirroring_session_get", integer(words[0], "the session"))
    return f"port {found.get('port')}, multicast group {found.get('group')}"


# ── Queues and the clock ──


def _queue(switch: Runtime, words: Arguments, what: str) -> str:
    numbers = [integer(word, f"the {what}, port or priority") for word in words]
    value, *where = numbers
    name = ("set_all_egress_queue_{}s", "set_egress_queue_{}", "set_egress_priority_queue_{}")
    if switch.call(name[len(where)].format(what), *where, value):
        raise ControlError(f"the {what} was refused")
    return ""


@command("set_queue_depth")
def _set_queue_depth(switch: Runtime, words: Arguments) -> str:
    return _queue(switch, words, "depth")


@command("set_queue_rate")
def _set_queue_rate(switch: Runtime, words: Arguments) -> str:
    return _queue(switch, words, "rate")


@command("get_time_elapsed")
def _get_time_elapsed(switch: Runtime, _: Arguments) -> str:
    return str(switch.call("get_time_elapsed_us"))


@command("get_time_since_epoch")
def _get_time_since_epoch(switch: Runtime, _: Arguments) -> str:
    return str(switch.call("get_time_since_epoch_us"))


# ── Parser value sets and CRCs ──


def _value(switch: Runtime, words: Arguments) -> tuple[str, bytes]:
    found = switch.program.value_sets[switch.value_sets.find(words[0])]
    value = number(words[1], found.width, f"parser value set {found.name}")
    return found.name, value.to_bytes((found.width + 7) // 8, "big")


@command("pvs_add")
def _pvs_add(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_parse_vset_add", *_value(switch, words))
    return ""


@command("pvs_remove")
def _pvs_remove(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_parse_vset_remove", *_value(switch, words))
    return ""


@command("pvs_get")
def _pvs_get(switch: Runtime, words: Arguments) -> str:
    name = switch.program.value_sets[switch.value_sets.find(words[0])].name
    values = [int.from_bytes(each, "big") for each in switch.standard("bm_parse_vset_get", name)]
    return "\n".join(map(hex, sorted(values)))


@command("pvs_clear")
def _pvs_clear(switch: Runtime, words: Arguments) -> str:
    name = switch.program.value_sets[switch.value_sets.find(words[0])].name
    switch.standard("bm_parse_vset_clear", name)
    return ""


def _set_crc(switch: Runtime, words: Arguments, width: int) -> str:
    name = switch.calculations.names[switch.calculations.find(words[0])]
    values = {}
    for word, field in zip(words[1:4], ("polynomial", "initial", "final_xor"), strict=True):
        value = number(integer(word, "a CRC parameter"), width, "a CRC parameter")
        values[field] = value - ((value >> width - 1) << width)  # travels as a signed integer
    flags = zip(words[4:6], ("reflect_data", "reflect_remainder"), strict=True)
    chosen = {**values, **{field: truth(word) for word, field in flags}}
    switch.standard(f"bm_set_crc{width}_custom_parameters", name, chosen)
    return ""


@command("set_crc16_parameters")
def _set_crc16(switch: Runtime, words: Arguments) -> str:
    return _set_crc(switch, words, 16)


@command("set_crc32_parameters")
def _set_crc32(switch: Runtime, words: Arguments) -> str:
    return _set_crc(switch, words, 32)
