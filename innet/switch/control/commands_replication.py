"""Commands of multicast groups, aggregation groups and mirror sessions, as simple_switch_CLI's."""

from __future__ import annotations

from innet.switch.control.command_table import Arguments, command, integer
from innet.switch.control.control_plane import ControlPlane


@command("mc_mgrp_create", "GROUP", 1, 1)
def _mc_mgrp_create(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.create_group(integer(words[0], "the group"))
    return ""


@command("mc_mgrp_destroy", "GROUP", 1, 1)
def _mc_mgrp_destroy(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.destroy_group(integer(words[0], "the group"))
    return ""


def _ports_and_lags(words: Arguments) -> tuple[list[int], list[int]]:
    split = words.index("|") if "|" in words else len(words)
    ports = [integer(word, "a port") for word in words[:split]]
    return ports, [integer(word, "a lag") for word in words[split + 1 :]]


@command("mc_node_create", "RID PORT ... [ | LAG ...]", 1, None)
def _mc_node_create(control: ControlPlane, words: Arguments) -> str:
    rid = integer(words[0], "the replication id")
    handle = control.state.replication.create_node(rid, *_ports_and_lags(words[1:]))
    return f"node was created with handle {handle}"


@command("mc_node_update", "NODE PORT ... [ | LAG ...]", 2, None)
def _mc_node_update(control: ControlPlane, words: Arguments) -> str:
    node = integer(words[0], "the node")
    control.state.replication.update_node(node, *_ports_and_lags(words[1:]))
    return ""


@command("mc_node_associate", "GROUP NODE", 2, 2)
def _mc_node_associate(control: ControlPlane, words: Arguments) -> str:
    group, node = integer(words[0], "the group"), integer(words[1], "the node")
    control.state.replication.associate(group, node)
    return ""


@command("mc_node_dissociate", "GROUP NODE", 2, 2)
def _mc_node_dissociate(control: ControlPlane, words: Arguments) -> str:
    group, node = integer(words[0], "the group"), integer(words[1], "the node")
    control.state.replication.dissociate(group, node)
    return ""


@command("mc_node_destroy", "NODE", 1, 1)
def _mc_node_destroy(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.destroy_node(integer(words[0], "the node"))
    return ""


@command("mc_dump", "", 0, 0)
def _mc_dump(control: ControlPlane, _: Arguments) -> str:
    replication = control.state.replication
    lines = [
        f"group {group}: " + ", ".join(f"port {p} rid {r}" for p, r in replication.replicas(group))
        for group in sorted(replication.groups)
    ]
    lines += [
        f"lag {lag}: ports {', '.join(map(str, ports)) or 'none'}"
        for lag, ports in sorted(replication.lags.items())
    ]
    return "\n".join(lines)


@command("mirroring_add", "SESSION PORT", 2, 2)
def _mirroring_add(control: ControlPlane, words: Arguments) -> str:
    session, port = integer(words[0], "the session"), integer(words[1], "the port")
    control.state.replication.set_session(session, port, None)
    return ""


@command("mirroring_add_mc", "SESSION GROUP", 2, 2)
def _mirroring_add_mc(control: ControlPlane, words: Arguments) -> str:
    session, group = integer(words[0], "the session"), integer(words[1], "the group")
    control.state.replication.set_session(session, None, group)
    return ""


@command("mirroring_delete", "SESSION", 1, 1)
def _mirroring_delete(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.delete_session(integer(words[0], "the session"))
    return ""


@command("mc_set_lag_membership", "LAG PORT ...", 2, None)
def _mc_set_lag_membership(control: ControlPlane, words: Arguments) -> str:
    lag, *ports = words
    control.state.replication.set_lag(
        integer(lag, "the lag"), [integer(port, "a port") for port in ports]
    )
    return ""


@command("mirroring_get", "SESSION", 1, 1)
def _mirroring_get(control: ControlPlane, words: Arguments) -> str:
    session = control.state.replication.session(integer(words[0], "the session"))
    return f"port {session.port}, multicast group {session.group}"
