"""The control plane of a running simple_switch, over Thrift."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from innet.bmv2.thrift_api import bytes_of, sent_match
from innet.bmv2.thrift_client import ANSWER_SECONDS, ThriftClient
from innet.core.errors import ControlError, StalledError
from innet.switch import ir
from innet.switch.control.control_plane import ControlPlane, QueueSetting
from innet.switch.frontend.loader import load_program
from innet.switch.state.hashes import CrcParameters
from innet.switch.state.meters import MeterRate
from innet.switch.state.replication import MirrorSession, MulticastNode, Replication
from innet.switch.state.tables import EntryLife, Generation, ProfileRef, Target

_CONTEXT = 0
_PAUSE = 0.01  # seconds between two checks
_ONE_OF_EACH_SERVICE: tuple[tuple[Any, ...], ...] = (
    ("bm_register_read_all", _CONTEXT, ""),
    ("bm_mc_get_entries", _CONTEXT),
    ("get_time_elapsed_us",),
)


@dataclass(frozen=True, slots=True)
class ReportedEntry:
    """An ``InstalledEntry`` (``innet.switch.control.control_plane``) that simple_switch reports."""

    handle: int
    matches: tuple[ir.Match, ...]
    action: Target
    priority: int
    life: EntryLife | None = None


class ThriftControlPlane(ControlPlane):
    """Operations on one running simple_switch.

    Args:
        program: BMv2 JSON of its program.
        port, host: where its control plane listens; see ``ThriftClient``.

    Attributes:
        client: the connection.

    Raises:
        ControlError: nothing listens there.
    """

    unavailable: ClassVar[Mapping[str, str]] = {
        "shell": "shell runs nothing on the switch; type its command in a terminal"
    }

    def __init__(self, program: Mapping[str, Any], port: int, host: str = "127.0.0.1") -> None:
        super().__init__(load_program(program))
        self.client = ThriftClient(port, host=host)

    def wait(self, seconds: float = 20.0) -> None:
        """Wait until all services are registered; simple_switch listens before that.

        Connections are opened in the caller's network namespace, like the first one.

        Raises:
            StalledError: services are missing after ``seconds``.
            ControlError: the connection is gone.
        """
        end = time.monotonic() + seconds
        try:
            for name, *arguments in _ONE_OF_EACH_SERVICE:
                self.client.limit(max(_PAUSE, end - time.monotonic()))
                while not self._offers(name, *arguments):
                    if time.monotonic() > end:
                        raise StalledError(
                            f"simple_switch did not offer all of its services within {seconds:g} s."
                        )
                    time.sleep(_PAUSE)
        finally:
            self.client.limit(ANSWER_SECONDS)

    def _offers(self, name: str, *arguments: Any) -> bool:
        """Whether the service of a call exists; the call itself may be refused."""
        try:
            self.call(name, *arguments)
        except ControlError as error:
            if "Unknown service" in str(error):
                self.client.connect()  # the server closes the connection after such a call
                return False
            if not self.open:
                raise
        return True

    @property
    def open(self) -> bool:
        """Whether the connection is open, as far as is known."""
        return self.client.open

    def close(self) -> None:
        self.client.close()

    def call(self, name: str, *arguments: Any) -> Any:
        """One call, also one that no command of the common language makes; see ``ThriftClient``.

        Raises:
            ControlError: it was refused.
        """
        return self.client.call(name, *arguments)

    def _standard(self, name: str, *arguments: Any) -> Any:
        """One call with a context argument."""
        return self.client.call(name, _CONTEXT, *arguments)

    # ── Tables ──

    def _of_table(self, name: str, table: int, *arguments: Any) -> Any:
        return self._standard(name, self.program.tables[table].name, *arguments)

    def _add_entry(
        self, table: int, matches: Sequence[ir.Match], action: Target, priority: int
    ) -> int:
        options = {"priority": priority}
        key = self._key(table, matches)
        handle: int
        if isinstance(action, ProfileRef):
            call = "bm_mt_indirect_ws_add_entry" if action.group else "bm_mt_indirect_add_entry"
            handle = self._of_table(call, table, key, action.handle, options)
        else:
            handle = self._of_table("bm_mt_add_entry", table, key, *self._sent(action), options)
        return handle

    def _modify_entry(self, table: int, handle: int, action: Target) -> None:
        if not isinstance(action, ProfileRef):
            self._of_table("bm_mt_modify_entry", table, handle, *self._sent(action))
        else:
            kind = "indirect_ws" if action.group else "indirect"
            self._of_table(f"bm_mt_{kind}_modify_entry", table, handle, action.handle)

    def _delete_entry(self, table: int, handle: int) -> None:
        indirect = self.program.tables[table].action_profile is not None
        call = "bm_mt_indirect_delete_entry" if indirect else "bm_mt_delete_entry"
        self._of_table(call, table, handle)

    def _clear_table(self, table: int) -> None:
        self._of_table("bm_mt_clear_entries", table, False)

    def _set_default(self, table: int, action: Target) -> None:
        if not isinstance(action, ProfileRef):
            self._of_table("bm_mt_set_default_action", table, *self._sent(action))
        elif action.group:
            self._of_table("bm_mt_indirect_ws_set_default_group", table, action.handle)
        else:
            self._of_table("bm_mt_indirect_set_default_member", table, action.handle)

    def _reset_default(self, table: int) -> None:
        indirect = self.program.tables[table].action_profile is not None
        call = "bm_mt_indirect_reset_default_entry" if indirect else "bm_mt_reset_default_entry"
        self._of_table(call, table)

    def _set_timeout(self, table: int, handle: int, milliseconds: int) -> None:
        indirect = self.program.tables[table].action_profile is not None
        call = "bm_mt_indirect_set_entry_ttl" if indirect else "bm_mt_set_entry_ttl"
        self._of_table(call, table, handle, milliseconds)

    def _count_entries(self, table: int) -> int:
        count: int = self._of_table("bm_mt_get_num_entries", table)
        return count

    def _entries(self, table: int) -> list[ReportedEntry]:
        return [self._received(table, each) for each in self._of_table("bm_mt_get_entries", table)]

    def _entry(self, table: int, handle: int) -> ReportedEntry:
        return self._received(table, self._of_table("bm_mt_get_entry", table, handle))

    def _find_entry(self, table: int, matches: Sequence[ir.Match], priority: int) -> ReportedEntry:
        key, options = self._key(table, matches), {"priority": priority}
        found = self._of_table("bm_mt_get_entry_from_key", table, key, options)
        return self._received(table, found)

    def _default(self, table: int) -> Target | None:
        found = self._of_table("bm_mt_get_default_entry", table)
        return self._target(self.program.tables[table].actions, found) if found["type"] else None

    # ── Entries as they travel ──

    def _sent(self, entry: ir.ActionEntry) -> tuple[str, list[bytes]]:
        """The name and the parameters of an action."""
        action = self.program.actions[entry.action]
        pairs = zip(entry.arguments, action.parameters, strict=True)
        return action.name, [bytes_of(value, each.width) for value, each in pairs]

    def _key(self, table: int, matches: Sequence[ir.Match]) -> list[dict[str, Any]]:
        keys = self.program.tables[table].keys
        return [sent_match(*each) for each in zip(matches, keys, strict=True)]

    def _received(self, table: int, entry: Mapping[str, Any]) -> ReportedEntry:
        found = self.program.tables[table]
        matches = [_match(*each) for each in zip(entry["matches"], found.keys, strict=True)]
        priority = max(0, entry.get("options", {}).get("priority", 0))
        action = self._target(found.actions, entry["action"])
        life = EntryLife(**entry["life"]) if "life" in entry else None
        return ReportedEntry(entry["handle"], tuple(matches), action, priority, life)

    def _target(self, actions: Iterable[int], found: Mapping[str, Any]) -> Target:
        """The target of an entry: one of ``actions``, a member or a group."""
        if "member" in found:
            return ProfileRef(False, found["member"])
        if "group" in found:
            return ProfileRef(True, found["group"])
        return self._received_action(actions, found)

    def _received_action(self, actions: Iterable[int], found: Mapping[str, Any]) -> ir.ActionEntry:
        names = {self.program.actions[each].name: each for each in actions}
        values = (int.from_bytes(each, "big") for each in found.get("arguments", ()))
        return ir.ActionEntry(names[found["name"]], tuple(values))

    # ── Action profiles ──

    def _of_profile(self, name: str, profile: int, *arguments: Any) -> Any:
        found = self.program.action_profiles[profile]
        return self._standard(f"bm_mt_act_prof_{name}", found.name, *arguments)

    def _create_member(self, profile: int, entry: ir.ActionEntry) -> int:
        handle: int = self._of_profile("add_member", profile, *self._sent(entry))
        return handle

    def _modify_member(self, profile: int, member: int, entry: ir.ActionEntry) -> None:
        self._of_profile("modify_member", profile, member, *self._sent(entry))

    def _delete_member(self, profile: int, member: int) -> None:
        self._of_profile("delete_member", profile, member)

    def _create_group(self, profile: int) -> int:
        handle: int = self._of_profile("create_group", profile)
        return handle

    def _delete_group(self, profile: int, group: int) -> None:
        self._of_profile("delete_group", profile, group)

    def _add_to_group(self, profile: int, member: int, group: int) -> None:
        self._of_profile("add_member_to_group", profile, member, group)

    def _remove_from_group(self, profile: int, member: int, group: int) -> None:
        self._of_profile("remove_member_from_group", profile, member, group)

    def _members(self, profile: int) -> dict[int, ir.ActionEntry]:
        found = self._of_profile("get_members", profile)
        members = {each["handle"]: self._received_member(profile, each) for each in found}
        return dict(sorted(members.items()))

    def _member(self, profile: int, member: int) -> ir.ActionEntry:
        return self._received_member(profile, self._of_profile("get_member", profile, member))

    def _received_member(self, profile: int, found: Mapping[str, Any]) -> ir.ActionEntry:
        tables = (each for each in self.program.tables if each.action_profile == profile)
        return self._received_action((each for table in tables for each in table.actions), found)

    def _groups(self, profile: int) -> dict[int, list[int]]:
        found = self._of_profile("get_groups", profile)
        return dict(sorted((each["handle"], sorted(each["members"])) for each in found))

    def _group(self, profile: int, group: int) -> list[int]:
        return sorted(self._of_profile("get_group", profile, group)["members"])

    # ── Registers, counters and meters ──

    def _of_register(self, name: str, register: int, *arguments: Any) -> Any:
        return self._standard(
            f"bm_register_{name}", self.program.registers[register].name, *arguments
        )

    def _read_register(self, register: int, index: int) -> int:
        value: int = self._of_register("read", register, index)
        return value

    def _read_registers(self, register: int) -> list[int]:
        return list(self._of_register("read_all", register))

    def _write_registers(self, register: int, start: int, end: int, value: int) -> None:
        if value >> 64:
            raise ControlError(f"{value} does not fit the 64 bits that simple_switch writes")
        self._of_register("write_range", register, start, end, _signed(value, 64))

    def _reset_register(self, register: int) -> None:
        self._of_register("reset", register)

    def _of_counter(self, name: str, counter: int, *arguments: Any) -> Any:
        """One call for a cell of a counter array, which may belong to a table."""
        array = self.program.counters[counter]
        if array.table is not None:
            return self._of_table(f"bm_mt_{name}_counter", array.table, *arguments)
        return self._standard(f"bm_counter_{name}", array.name, *arguments)

    def _read_counter(self, counter: int, index: int) -> tuple[int, int]:
        cell = self._of_counter("read", counter, index)
        return cell["packets"], cell["bytes"]

    def _write_counter(self, counter: int, index: int, packets: int, size: int) -> None:
        self._of_counter("write", counter, index, {"packets": packets, "bytes": size})

    def _reset_counter(self, counter: int) -> None:
        array = self.program.counters[counter]
        if array.table is not None:
            self._of_table("bm_mt_reset_counters", array.table)
        else:
            self._standard("bm_counter_reset_all", array.name)

    def _of_meter(self, name: str, meter: int, *arguments: Any) -> Any:
        """One call for a cell of a meter array, which may belong to a table."""
        array = self.program.meters[meter]
        if array.table is not None:
            return self._of_table(f"bm_mt_{name}_meter_rates", array.table, *arguments)
        return self._standard(f"bm_meter_{name}_rates", array.name, *arguments)

    def _set_rates(self, meter: int, index: int | None, rates: Sequence[MeterRate]) -> None:
        sent = [{"per_microsecond": each.per_microsecond, "burst": each.burst} for each in rates]
        if index is None:
            self._standard("bm_meter_array_set_rates", self.program.meters[meter].name, sent)
        else:
            self._of_meter("set", meter, index, sent)

    def _get_rates(self, meter: int, index: int) -> list[MeterRate]:
        found = self._of_meter("get", meter, index)
        return [MeterRate(each["per_microsecond"], each["burst"]) for each in found]

    # ── Multicast and mirroring ──

    def replication(self) -> Replication:
        found = json.loads(self._standard("bm_mc_get_entries"))
        copies = {each["handle"]: each for each in found["l2_handles"]}
        nodes = {}
        for each in found["l1_handles"]:
            to = copies[each["l2_handle"]]
            nodes[each["handle"]] = MulticastNode(
                each["rid"], tuple(to["ports"]), tuple(to["lags"])
            )
        groups = {int(each["id"]): each["l1_handles"] for each in found["mgrps"]}
        for group, handles in groups.items():
            for handle in handles:
                nodes[handle].group = group
        lags = {each["id"]: tuple(each["ports"]) for each in found["lags"]}
        return Replication(Generation(), groups, nodes, lags)

    def _create_multicast_group(self, group: int) -> None:
        self._standard("bm_mc_mgrp_create", group)

    def _destroy_multicast_group(self, group: int) -> None:
        self._standard("bm_mc_mgrp_destroy", group)

    def _create_node(self, rid: int, ports: Sequence[int], lags: Sequence[int]) -> int:
        handle: int = self._standard("bm_mc_node_create", rid, _bit_map(ports), _bit_map(lags))
        return handle

    def _update_node(self, node: int, ports: Sequence[int], lags: Sequence[int]) -> None:
        self._standard("bm_mc_node_update", node, _bit_map(ports), _bit_map(lags))

    def _associate_node(self, group: int, node: int) -> None:
        self._standard("bm_mc_node_associate", group, node)

    def _dissociate_node(self, group: int, node: int) -> None:
        self._standard("bm_mc_node_dissociate", group, node)

    def _destroy_node(self, node: int) -> None:
        self._standard("bm_mc_node_destroy", node)

    def _set_lag(self, lag: int, ports: Sequence[int]) -> None:
        self._standard("bm_mc_set_lag_membership", lag, _bit_map(ports))

    def _set_mirror_session(self, session: int, where: MirrorSession) -> None:
        both = {"port": where.port, "group": where.group}
        sent = {name: value for name, value in both.items() if value is not None}
        self.call("mirroring_session_add", session, sent)

    def _delete_mirror_session(self, session: int) -> None:
        self.call("mirroring_session_delete", session)

    def _mirror_session(self, session: int) -> MirrorSession:
        found = self.call("mirroring_session_get", session)
        return MirrorSession(found.get("port"), found.get("group"))

    # ── Parser value sets and hash parameters ──

    def _of_value_set(self, name: str, value_set: int, *values: int) -> Any:
        found = self.program.value_sets[value_set]
        sent = [bytes_of(value, found.width) for value in values]
        return self._standard(f"bm_parse_vset_{name}", found.name, *sent)

    def _values(self, value_set: int) -> set[int]:
        return {int.from_bytes(each, "big") for each in self._of_value_set("get", value_set)}

    def _add_value(self, value_set: int, value: int) -> None:
        self._of_value_set("add", value_set, value)

    def _remove_value(self, value_set: int, value: int) -> None:
        self._of_value_set("remove", value_set, value)

    def _clear_values(self, value_set: int) -> None:
        self._of_value_set("clear", value_set)

    def _set_crc(self, calculation: int, parameters: CrcParameters) -> None:
        width = parameters.width
        if width not in (16, 32):
            raise ControlError(f"simple_switch sets no CRC of {width} bits")
        self._standard(
            f"bm_set_crc{width}_custom_parameters",
            self.program.calculations[calculation].name,
            {
                "polynomial": _signed(parameters.polynomial, width),
                "initial": _signed(parameters.initial, width),
                "final_xor": _signed(parameters.final_xor, width),
                "reflect_data": parameters.reflect_data,
                "reflect_remainder": parameters.reflect_remainder,
            },
        )

    def _set_toeplitz_key(self, calculation: int, key: bytes) -> None:
        self._standard("bm_set_toeplitz_hash_key", self.program.calculations[calculation].name, key)

    # ── The switch as a whole ──

    def _set_queue(
        self, what: QueueSetting, value: int, port: int | None, priority: int | None
    ) -> None:
        if port is None:
            refused = self.call(f"set_all_egress_queue_{what}s", value)
        elif priority is None:
            refused = self.call(f"set_egress_queue_{what}", port, value)
        else:
            try:
                refused = self.call(f"set_egress_priority_queue_{what}", port, priority, value)
            except ControlError as error:
                if "range_check" not in str(error):  # std::vector::at says so
                    raise
                raise ControlError(
                    f"there is no priority {priority}: this simple_switch has fewer queues per "
                    "port; --priority-queues says how many, and the lowest priority is 0"
                ) from None
        if refused:
            raise ControlError(f"the {what} was refused")

    def _read_queues(self, port: int | None, priority: int | None) -> NoReturn:  # noqa: ARG002
        raise ControlError(
            "simple_switch does not report its queues; a program can, with standard_metadata's "
            "enq_qdepth, deq_qdepth and deq_timedelta"
        )

    def get_time_elapsed(self) -> int:
        elapsed: int = self.call("get_time_elapsed_us")
        return elapsed

    def get_time_since_epoch(self) -> int:
        since: int = self.call("get_time_since_epoch_us")
        return since

    def switch_info(self) -> str:
        found = self.call("bm_mgmt_get_info")
        return "\n".join(f"{name}: {value}" for name, value in found.items())

    def show_ports(self) -> str:
        found = sorted(self.call("bm_dev_mgr_show_ports"), key=lambda each: each["port"])
        return "\n".join(
            f"port {each['port']}: {each['interface']}, {'up' if each['up'] else 'down'}"
            for each in found
        )

    def reset_state(self) -> None:
        self.call("bm_reset_state")


# ── Values as they travel ──


def _signed(value: int, width: int) -> int:
    """An unsigned value as the signed integer of the same bits."""
    return value - ((value >> width - 1) << width)


def _bit_map(numbers: Sequence[int]) -> str:
    """A set of small numbers as binary digits, number 0 last."""
    last = max(numbers, default=-1)
    return "".join("1" if each in numbers else "0" for each in range(last, -1, -1))


def _match(found: Mapping[str, Any], key: ir.TableKey) -> ir.Match:
    def value(name: str) -> int:
        return int.from_bytes(body[name], "big")

    body = found[key.match.value]
    match key.match:
        case ir.MatchKind.VALID:
            return ir.ExactMatch(int(body["key"]))
        case ir.MatchKind.EXACT:
            return ir.ExactMatch(value("key"))
        case ir.MatchKind.LPM:
            return ir.LpmMatch(value("key"), body["prefix"])
        case ir.MatchKind.TERNARY:
            return ir.TernaryMatch(value("key"), value("mask"))
        case ir.MatchKind.RANGE:
            return ir.RangeMatch(value("low"), value("high"))
