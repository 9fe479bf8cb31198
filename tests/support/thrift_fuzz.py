"""Random calls over Thrift to a switch and to its likeness, which must answer alike."""

from __future__ import annotations

import json
import threading
import time

from innet.bmv2.thrift_api import EXACT, LPM, RANGE, SERVICES, TERNARY, VALID
from innet.bmv2.thrift_client import ThriftClient
from innet.core.errors import ControlError
from innet.simple_switch.log import Log
from innet.simple_switch.options import SwitchOptions
from innet.simple_switch.process import SimpleSwitch
from innet.switch import ir, load_program

_C = 0
_TYPES = {
    ir.MatchKind.EXACT: EXACT,
    ir.MatchKind.LPM: LPM,
    ir.MatchKind.TERNARY: TERNARY,
    ir.MatchKind.VALID: VALID,
    ir.MatchKind.RANGE: RANGE,
}
#: Calls that are not compared: they tell of the process, or change what others need.
LEFT_OUT = {
    "bm_load_new_config",
    "bm_swap_configs",
    "bm_mgmt_get_info",
    "bm_serialize_state",
    "bm_get_config",
    "bm_get_config_md5",
    "bm_dev_mgr_add_port",
    "bm_dev_mgr_remove_port",
    "bm_dev_mgr_show_ports",
    "get_time_elapsed_us",
    "get_time_since_epoch_us",
    # Of a calculation that does not exist: simple_switch tells of its C++ container there.
    "bm_set_crc16_custom_parameters",
    "bm_set_crc32_custom_parameters",
    "bm_set_toeplitz_hash_key",
}


class Process:
    """The built-in switch as ``innet simple-switch``, in a thread of this process."""

    def __init__(self, config, port=0, interfaces=(), log=None, **options):
        notifications = options.pop("notifications", None)
        given = SwitchOptions(dict(interfaces), thrift_port=port, **options)
        self.switch = SimpleSwitch(config, given, log or Log(), notifications)
        self.port = self.switch.thrift_port
        self._thread = threading.Thread(target=self.switch.run, daemon=True)
        self._thread.start()

    def close(self):
        self.switch.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()


class Calls:
    """Random calls for one program."""

    def __init__(self, document, random):
        self.program, self.random = load_program(document), random
        self._names = sorted(set(SERVICES["standard"]) - LEFT_OUT) + sorted(
            set(SERVICES["simple_pre_lag"]) | (set(SERVICES["simple_switch"]) - LEFT_OUT)
        )
        weights = {
            "bm_mt_add_entry": 8,
            "bm_mt_indirect_add_entry": 6,
            "bm_mt_act_prof_add_member": 4,
        }
        weights |= {
            "bm_mt_indirect_ws_add_entry": 6,
            "bm_mt_clear_entries": 0.2,
            "bm_reset_state": 0.1,
        }
        weights |= {"bm_mt_act_prof_create_group": 3, "bm_mt_act_prof_add_member_to_group": 4}
        weights |= {"bm_mc_node_create": 3, "bm_mc_mgrp_create": 3, "bm_mc_node_associate": 4}
        if self.program.action_profiles:
            weights["bm_reset_state"] = 0  # simple_switch may crash later
        self._weights = [weights.get(name, 1) for name in self._names]

    def next(self):
        """A call: its name and arguments."""
        (name,) = self.random.choices(self._names, self._weights)
        return name, self._arguments(name)

    def reads(self):
        """Calls that read everything."""
        program = self.program
        for table in program.tables:
            yield "bm_mt_get_entries", (_C, table.name)
            yield "bm_mt_get_default_entry", (_C, table.name)
            yield "bm_mt_get_num_entries", (_C, table.name)
        for profile in program.action_profiles:
            yield "bm_mt_act_prof_get_members", (_C, profile.name)
            yield "bm_mt_act_prof_get_groups", (_C, profile.name)
        for register in program.registers:
            yield "bm_register_read_all", (_C, register.name)
        for each in program.value_sets:
            yield "bm_parse_vset_get", (_C, each.name)
        for counter in program.counters:
            if counter.table is None:
                for index in range(min(4, counter.size)):
                    yield "bm_counter_read", (_C, counter.name, index)
        for meter in program.meters:
            if meter.table is None:
                for index in range(min(4, meter.size)):
                    yield "bm_meter_get_rates", (_C, meter.name, index)
        for session in (0, 1, 2):
            yield "mirroring_session_get", (session,)
        yield "bm_mc_get_entries", (_C,)

    def _pick(self, things):
        """Mostly a name of these, seldom one of nothing."""
        names = [each.name for each in things]
        return self.random.choice(names) if names and self.random.random() > 0.04 else "nothing"

    def _small(self, most=6):
        return self.random.choice([*range(most), self.random.randrange(1 << 20)])

    def _arguments(self, name):
        random, program = self.random, self.program
        table = next((t for t in random.sample(program.tables, len(program.tables))), None)
        table_name = self._pick([table] if table is not None else [])
        if name.startswith("bm_mt_act_prof"):
            return self._of_profile(name)
        if name.startswith("bm_mt_"):
            return (_C, table_name, *self._of_table(name, table))
        if name.startswith("bm_mc_"):
            return self._of_groups(name)
        if name.startswith("bm_counter"):
            rest = {"read": (self._small(),), "write": (self._small(), self._counter())}
            return (_C, self._pick(program.counters), *rest.get(name.rsplit("_", 1)[1], ()))
        if name.startswith("bm_register"):
            rest = {
                "bm_register_read": (self._small(),),
                "bm_register_write": (self._small(), random.randrange(-(1 << 40), 1 << 62)),
                "bm_register_write_range": (self._small(3), self._small(), random.randrange(99)),
            }
            return (_C, self._pick(program.registers), *rest.get(name, ()))
        if name.startswith("bm_meter"):
            rest = {
                "bm_meter_set_rates": (self._small(), self._rates()),
                "bm_meter_array_set_rates": (self._rates(),),
                "bm_meter_get_rates": (self._small(),),
            }
            return (_C, self._pick(program.meters), *rest[name])
        if name.startswith("bm_parse_vset"):
            found = random.choice(program.value_sets) if program.value_sets else None
            value = (
                random.randbytes((found.width + 7) // 8) if found and found.width % 8 == 0 else b""
            )
            takes = name.endswith(("add", "remove")) and value
            if not value:
                return (_C, "nothing", *([b""] if name.endswith(("add", "remove")) else []))
            return (_C, self._pick([found]), *([value] if takes else []))
        if name.startswith("bm_learning"):
            rest = {
                "ack": (random.randrange(3), [0]),
                "buffer": (0,),
                "timeout": (1000,),
                "size": (1,),
            }
            number = random.choice([each.id for each in program.learn_lists] + [99])
            return (_C, number, *rest[name.rsplit("_", 1)[1]])
        return self._of_switch(name)

    def _of_switch(self, name):
        random = self.random
        session = random.choice([0, 1, 2, 32767])
        choices = {
            "bm_get_id_from_name": lambda: (
                _C,
                random.randrange(6),
                self._pick([*self.program.tables, *self.program.registers, *self.program.counters]),
            ),
            "bm_reset_state": tuple,
            "mirroring_session_add": lambda: (session, {"port": random.randrange(9)}),
            "mirroring_mapping_add": lambda: (session, random.randrange(9)),
            "set_all_egress_queue_depths": lambda: (random.randrange(99),),
            "set_all_egress_queue_rates": lambda: (random.randrange(99),),
            "set_egress_queue_depth": lambda: (random.randrange(9), 5),
            "set_egress_queue_rate": lambda: (random.randrange(9), 5),
            "set_egress_priority_queue_depth": lambda: (random.randrange(9), 0, 5),
            "set_egress_priority_queue_rate": lambda: (random.randrange(9), 0, 5),
        }
        return choices.get(name, lambda: (session,))()

    def _counter(self):
        return {"packets": self._small(), "bytes": self._small()}

    def _rates(self):
        rates = sorted(self.random.choice([0.5, 1.0, 2.0]) for _ in range(2))
        return [{"per_microsecond": rate, "burst": self._small()} for rate in rates]

    def _action(self, possible):
        """The name and data of an action, sometimes with one value too many."""
        random = self.random
        if not possible or random.random() < 0.05:
            return "nothing", []
        action = self.program.actions[random.choice(possible)]
        data = [
            (random.getrandbits(each.width) if random.random() < 0.8 else 0).to_bytes(
                (each.width + 7) // 8, "big"
            )
            for each in action.parameters
        ]
        return action.name, data if random.random() > 0.03 else [*data, b"\1"]

    def _of_profile(self, name):
        random, program = self.random, self.program
        # simple_switch makes groups also where nothing can select from them.
        places = [
            place
            for place, each in enumerate(program.action_profiles)
            if each.selector is not None or "group" not in name
        ]
        place = random.choice(places) if places else None
        mine = self._pick([] if place is None else [program.action_profiles[place]])
        tables = [each for each in program.tables if each.action_profile == place is not None]
        possible = [action for table in tables for action in table.actions]
        member, group = random.randrange(4), random.randrange(3)
        rest = {
            "add_member": lambda: self._action(possible),
            "modify_member": lambda: (member, *self._action(possible)),
            "delete_member": lambda: (member,),
            "get_member": lambda: (member,),
            "delete_group": lambda: (group,),
            "get_group": lambda: (group,),
            "add_member_to_group": lambda: (member, group),
            "remove_member_from_group": lambda: (member, group),
        }
        return (_C, mine, *rest.get(name.removeprefix("bm_mt_act_prof_"), tuple)())

    def _of_table(self, name, table):
        random = self.random
        handle = self._small(8)
        member = random.randrange(4)
        options = {"priority": random.randrange(4)}
        rest = {
            "clear_entries": lambda: (random.random() < 0.5,),
            "add_entry": lambda: (self._key(table), *self._action(table.actions), options),
            "set_default_action": lambda: self._action(table.actions),
            "modify_entry": lambda: (handle, *self._action(table.actions)),
            "delete_entry": lambda: (handle,),
            "get_entry": lambda: (handle,),
            "get_entry_from_key": lambda: (self._key(table), options),
            "set_entry_ttl": lambda: (handle, 0),
            "read_counter": lambda: (handle,),
            "write_counter": lambda: (handle, self._counter()),
            "set_meter_rates": lambda: (handle, self._rates()),
            "get_meter_rates": lambda: (handle,),
            "indirect_add_entry": lambda: (self._key(table), member, options),
            "indirect_modify_entry": lambda: (handle, member),
            "indirect_delete_entry": lambda: (handle,),
            "indirect_set_entry_ttl": lambda: (handle, 0),
            "indirect_set_default_member": lambda: (member,),
            "indirect_ws_add_entry": lambda: (self._key(table), member, options),
            "indirect_ws_modify_entry": lambda: (handle, member),
            "indirect_ws_set_default_group": lambda: (member,),
        }
        return rest.get(name.removeprefix("bm_mt_"), tuple)()

    def _key(self, table):
        random = self.random
        key = [self._match(each) for each in table.keys]
        if random.random() < 0.03:
            key = key[1:]
        return key

    def _match(self, key):
        random, width = self.random, key.width
        size = (width + 7) // 8

        def value(most=1 << 62):
            found = (
                random.randrange(min(4, 1 << width))
                if random.random() < 0.7
                else random.getrandbits(width)
            )
            return min(found, most).to_bytes(size, "big")

        kind = key.match if random.random() > 0.02 else random.choice(list(_TYPES))
        if kind is ir.MatchKind.LPM:
            # simple_switch reads bits behind the prefix back, which mean nothing.
            prefix = random.randrange(width + 1)
            mask = ((1 << prefix) - 1) << (width - prefix)
            masked = int.from_bytes(value(), "big") & mask
            body = {"key": masked.to_bytes(size, "big"), "prefix": prefix}
        elif kind is ir.MatchKind.TERNARY:
            body = {"key": value(), "mask": value()}
        elif kind is ir.MatchKind.RANGE:
            pair = [value(), value()]
            pair = sorted(pair) if random.random() > 0.1 else pair
            body = {"low": pair[0], "high": pair[1]}
        elif kind is ir.MatchKind.VALID:
            body = {"key": random.random() < 0.5}
        else:
            body = {"key": value()}
        return {"type": _TYPES[kind], kind.value: body}

    def _of_groups(self, name):
        random = self.random
        group, node = random.randrange(1, 4), random.randrange(4)
        ports = "".join(random.choice("01") for _ in range(8))
        rest = {
            "mgrp_create": (random.choice([group, 9]),),
            # simple_switch cannot destroy the nodes of a group that is gone, so it is a lone one.
            "mgrp_destroy": (9,),
            "node_create": (random.randrange(9), ports, "0"),
            "node_update": (node, ports, "1"),
            "node_associate": (group, node),
            "node_dissociate": (group, node),
            "node_destroy": (node,),
            "set_lag_membership": (1, ports),
        }
        return (_C, *rest.get(name.removeprefix("bm_mc_"), ()))


def answer(client: ThriftClient, name, arguments):
    """What a call gives, or why it is refused; words of other errors are each switch's own."""
    try:
        found = client.call(name, *arguments)
    except ControlError as error:
        known = SERVICES.get("standard", {}).get(name)
        codes = known.refusals.values() if known is not None else ()
        if str(error) in codes or "was refused with code" in str(error):
            return "refused", str(error)
        return "refused", None
    if name == "bm_mc_get_entries":
        found = {part: sorted(each, key=str) for part, each in _sorted(json.loads(found)).items()}
    return "answered", found


def _sorted(document):
    """The same with keys in order: simple_switch lists by hash."""
    return json.loads(json.dumps(document, sort_keys=True))


def connected(port):
    """A client of the simple_switch that listens at a port, once it has all its services."""
    end = time.monotonic() + 20
    while True:
        client = None
        try:
            client = ThriftClient(port)
            client.call("get_time_elapsed_us")
        except ControlError:
            if client is not None:
                client.close()  # it listens before it has all its services
            assert time.monotonic() < end
            time.sleep(0.05)
        else:
            return client
