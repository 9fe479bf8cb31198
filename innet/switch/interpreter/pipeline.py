"""Primitives, actions, tables and pipelines as Python functions of a packet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatchmethod

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.engine import (
    DEPARSER,
    MAX_BACKWARD_JUMPS,
    SwitchState,
    endless_loop,
)
from innet.switch.interpreter.expressions import (
    OUT_OF_BOUNDS,
    UINT32,
    UINT64,
    CalculationCompiler,
    ExpressionCompiler,
)
from innet.switch.interpreter.packet import FieldLayout, Packet
from innet.switch.interpreter.packet_log import PacketLog
from innet.switch.ir.text import Text
from innet.switch.state.hashes import uniform
from innet.switch.state.tables import BYTES, PACKETS, ProfileRef, RuntimeEntry, TableState, Target
from innet.switch.trace import COLORS, notation

Step = Callable[[Packet], int | None]
"""Runs a primitive; a jump returns the position of the next primitive."""
Run = Callable[[Packet], None]


class FailedAssertionError(Exception):
    """An assert() or assume() of the program was false. The engine catches it."""


class ActionCompiler:
    """Compiles primitives and actions to closures."""

    def __init__(
        self,
        layout: FieldLayout,
        state: SwitchState,
        expressions: ExpressionCompiler,
        calculations: CalculationCompiler,
    ) -> None:
        self.layout = layout
        self.program = layout.program
        self.state = state
        self.make = expressions
        self.calculations = calculations
        self.trace = expressions.trace
        self.log = self.trace if isinstance(self.trace, PacketLog) else None

    def run_deparser(self, primitives: Sequence[ir.Primitive]) -> Run:
        """``run_all`` of what the deparser runs; in the log each is an action."""
        log = self.log
        if log is None:
            return self.run_all(primitives, DEPARSER)
        bodies = [log.deparser(position) for position in range(len(primitives))]
        lines = [[each.title, *each.primitives] for each in bodies]
        return self.run_all(primitives, DEPARSER, lines)

    def run_all(
        self, primitives: Sequence[ir.Primitive], name: str, lines: Sequence[Sequence[str]] = ()
    ) -> Run:
        """A function that runs the primitives of action ``name`` in order, jumps included.

        ``lines``: what the log says before each.
        """
        steps = [self.compile(primitive) for primitive in primitives]
        if lines:
            steps = [self._told(*each) for each in zip(lines, steps, strict=True)]
        if not any(isinstance(each, ir.Jump | ir.JumpIfZero) for each in primitives):

            def run(packet: Packet) -> None:
                for step in steps:
                    step(packet)

            return run

        def run_with_jumps(packet: Packet) -> None:
            position = jumped_back = 0
            while position < len(steps):
                target = steps[position](packet)
                if target is not None and target <= position:
                    jumped_back += 1
                    if jumped_back > MAX_BACKWARD_JUMPS:
                        jump = primitives[position]
                        assert isinstance(jump, ir.Jump | ir.JumpIfZero)
                        raise endless_loop(self.program, name, jump)
                position = position + 1 if target is None else target

        return run_with_jumps

    def _told(self, lines: Sequence[str], step: Step) -> Step:
        """A step that writes lines first."""
        log = self.log
        assert log is not None

        def told(packet: Packet) -> int | None:
            for each in lines:
                log.line("trace", each)
            return step(packet)

        return told

    def compile(self, primitive: ir.Primitive) -> Step:
        """A function that runs one primitive, and traces its changes."""
        step = self.step(primitive)
        return step if self.trace is None else self.trace.changes(step, primitive)

    @singledispatchmethod
    def step(self, primitive: ir.Primitive) -> Step:
        """A function that runs one primitive without tracing."""
        raise AssertionError(f"no primitive that the interpreter has: {primitive}")

    # ── Values ──

    @step.register
    def _(self, primitive: ir.Assign) -> Step:
        store, value = self.make.store(primitive.target), self.make.data(primitive.value)
        return lambda packet: store(packet, value(packet))

    @step.register
    def _(self, primitive: ir.AssignVariable) -> Step:
        target, source = self._find_slot(primitive.target), self._find_slot(primitive.source)
        start = self.layout.start

        def assign(packet: Packet) -> None:
            (to, to_field), (origin, origin_field) = target(packet), source(packet)
            if OUT_OF_BOUNDS in (to, origin):
                return
            packet.fields[start[to] + to_field] = packet.fields[start[origin] + origin_field]
            packet.variable_widths[to] = packet.variable_widths[origin]

        return assign

    def _find_slot(
        self, reference: ir.FieldRef | ir.HeaderField
    ) -> Callable[[Packet], tuple[int, int]]:
        if isinstance(reference, ir.FieldRef):
            known = (reference.header, reference.field)
            return lambda _: known
        find, field = self.make.header(reference.header), reference.field
        return lambda packet: (find(packet), field)

    @step.register
    def _(self, primitive: ir.RegisterRead) -> Step:
        store, index = self.make.store(primitive.target), self.make.data(primitive.index)
        read, log = self.make.register_reader(primitive.register), self.log
        array = self.program.registers[primitive.register]

        def read_into(packet: Packet) -> None:
            position = index(packet) & UINT32
            value = read(position)
            if value is not None:
                store(packet, value)
            if log is not None:
                log.register_read(array, position, value)

        return read_into

    @step.register
    def _(self, primitive: ir.RegisterWrite) -> Step:
        index, value = self.make.data(primitive.index), self.make.data(primitive.value)
        write, log = self.make.register_writer(primitive.register), self.log
        if log is None:
            return lambda packet: write(index(packet) & UINT32, value(packet))
        array = self.program.registers[primitive.register]

        def logged(packet: Packet) -> None:
            position, given = index(packet) & UINT32, value(packet)
            write(position, given)
            log.register_write(array, position, given if position < array.size else None)

        return logged

    @step.register
    def _(self, primitive: ir.Count) -> Step:
        index, counter = self.make.data(primitive.index), primitive.counter
        count = self.counter(self.program.counters[counter].name, self.state.counters[counter])
        if (log := self.log) is None:
            return lambda packet: count(packet, index(packet) & UINT32)
        array = self.program.counters[counter]

        def logged(packet: Packet) -> None:
            position = index(packet) & UINT32
            count(packet, position)
            log.counted(array, position, is_there=position < array.size)

        return logged

    def counter(self, name: str, cells: NDArray[np.uint64]) -> Callable[[Packet, int], None]:
        """Counts a packet in the cell of an index, if it is in bounds."""
        trace = self.trace

        def count(packet: Packet, index: int) -> None:
            if index < len(cells):
                cells[index, PACKETS] += 1
                cells[index, BYTES] += packet.ingress_length

        if trace is None:
            return count

        def traced(packet: Packet, index: int) -> None:
            if index >= len(cells):
                trace("out_of_bounds", array=f"counter {name}", index=index)
                return
            count(packet, index)
            packets, size = cells[index].tolist()
            trace("counter", counter=name, index=index, packets=packets, bytes=size)

        return traced

    @step.register
    def _(self, primitive: ir.ExecuteMeter) -> Step:
        index = self.make.data(primitive.index)
        execute = self.meter(primitive.meter, primitive.target)
        return lambda packet: execute(packet, index(packet) & UINT32)

    def meter(
        self, number: int, target: ir.LValue, *, direct: bool = False
    ) -> Callable[[Packet, int], None]:
        """Writes a packet's color by the cell of an index to ``target``, if it is in bounds.

        ``direct``: a table executes it.
        """
        meter, state, trace = self.state.meters[number], self.state, self.trace
        store, size, name = self.make.store(target), meter.array.size, meter.array.name
        log = self.log

        def execute(packet: Packet, index: int) -> None:
            if index < size:
                if log is not None and not direct:
                    log.line("debug", f"Executing meter {name}[{index}]")
                color = meter.execute(index, packet.ingress_length, state.clock)
                if trace is not None:
                    trace("meter", meter=name, index=index, color=COLORS.get(color, str(color)))
                store(packet, color)
                if log is not None and not direct:
                    log.metered(meter.array, index, color)
            elif log is not None:
                log.metered(meter.array, index, None)
            elif trace is not None:
                trace("out_of_bounds", array=f"meter {name}", index=index)

        return execute

    @step.register
    def _(self, primitive: ir.Hash) -> Step:
        store = self.make.store(primitive.target)
        base, size = self.make.data(primitive.base), self.make.data(primitive.size)
        calculate, log = self.calculations.compile(primitive.calculation), self.log

        def assign(packet: Packet) -> None:
            modulus = size(packet) & UINT64 or 1
            value = calculate(packet) % modulus + (base(packet) & UINT64)
            if log is not None:
                log.hashed(base(packet) & UINT64, size(packet) & UINT64, value & UINT64)
            store(packet, value & UINT64)

        return assign

    @step.register
    def _(self, primitive: ir.Random) -> Step:
        store = self.make.store(primitive.target)
        low, high = self.make.data(primitive.low), self.make.data(primitive.high)
        random_state, log = self.state.random_state, self.log

        def assign(packet: Packet) -> None:
            least, greatest = low(packet) & UINT64, high(packet) & UINT64
            if least <= greatest:
                value = uniform(random_state, least, greatest)
                if log is not None:
                    log.line("trace", f"random(lo={least}, hi={greatest}) = {value}")
                store(packet, value)
            elif log is not None:
                log.plain("warn", "random result is not specified when lo > hi")

        return assign

    # ── Headers ──

    @step.register
    def _(self, primitive: ir.AssignHeader) -> Step:
        target, source = self.make.header(primitive.target), self.make.header(primitive.source)
        return lambda packet: self._copy_header(packet, target(packet), source(packet))

    def _copy_header(self, packet: Packet, target: int, source: int) -> None:
        if target == OUT_OF_BOUNDS:
            return
        if source == OUT_OF_BOUNDS or not packet.valid[source]:
            self.layout.mark_invalid(packet, target)
            return
        values = packet.fields[self.layout.fields_of(source)]
        width = packet.variable_widths[source]
        self.layout.mark_valid(packet, target)
        packet.fields[self.layout.fields_of(target)] = values
        packet.variable_widths[target] = width

    def _copy_union(self, packet: Packet, target: int, source: int) -> None:
        if OUT_OF_BOUNDS in (target, source):
            return
        unions = self.program.unions
        for to, origin in zip(unions[target].headers, unions[source].headers, strict=True):
            self._copy_header(packet, to, origin)

    @step.register
    def _(self, primitive: ir.AssignUnion) -> Step:
        target, source = self.make.union(primitive.target), self.make.union(primitive.source)
        return lambda packet: self._copy_union(packet, target(packet), source(packet))

    @step.register
    def _(self, primitive: ir.AssignStack) -> Step:
        target, source = primitive.target, primitive.source
        stacks = self.program.stacks
        pairs = tuple(zip(stacks[target].headers, stacks[source].headers, strict=True))

        def assign(packet: Packet) -> None:
            packet.stack_counts[target] = packet.stack_counts[source]
            for to, origin in pairs:
                self._copy_header(packet, to, origin)

        return assign

    @step.register
    def _(self, primitive: ir.AssignUnionStack) -> Step:
        target, source = primitive.target, primitive.source
        stacks = self.program.union_stacks
        pairs = tuple(zip(stacks[target].unions, stacks[source].unions, strict=True))

        def assign(packet: Packet) -> None:
            packet.union_stack_counts[target] = packet.union_stack_counts[source]
            for to, origin in pairs:
                self._copy_union(packet, to, origin)

        return assign

    @step.register
    def _(self, primitive: ir.AddHeader) -> Step:
        find, layout = self.make.header(primitive.header), self.layout

        def add(packet: Packet) -> None:
            header = find(packet)
            if header == OUT_OF_BOUNDS or packet.valid[header]:
                return
            place = layout.fields_of(header)
            packet.fields[place] = [0] * (place.stop - place.start)
            layout.mark_valid(packet, header)
            packet.length += layout.bytes_of(packet, header)

        return add

    @step.register
    def _(self, primitive: ir.RemoveHeader) -> Step:
        find, layout = self.make.header(primitive.header), self.layout

        def remove(packet: Packet) -> None:
            header = find(packet)
            if header == OUT_OF_BOUNDS or not packet.valid[header]:
                return
            packet.length -= layout.bytes_of(packet, header)
            layout.mark_invalid(packet, header)

        return remove

    @step.register
    def _(self, primitive: ir.Push) -> Step:
        count, stack = self.make.data(primitive.count), primitive.stack
        swap, elements = self._swapper(primitive)

        def push(packet: Packet) -> None:
            size, by = len(elements), count(packet) & UINT64
            counts = packet.union_stack_counts if primitive.of_unions else packet.stack_counts
            counts[stack] = min(size, counts[stack] + by)
            for i in range(size - 1, by - 1, -1):
                swap(packet, elements[i], elements[i - by])
            self._invalidate(packet, primitive, elements[:by])

        return push

    @step.register
    def _(self, primitive: ir.Pop) -> Step:
        count, stack = self.make.data(primitive.count), primitive.stack
        swap, elements = self._swapper(primitive)

        def pop(packet: Packet) -> None:
            size, by = len(elements), count(packet) & UINT64
            counts = packet.union_stack_counts if primitive.of_unions else packet.stack_counts
            counts[stack] = max(0, counts[stack] - by)
            for i in range(size - by):
                swap(packet, elements[i], elements[i + by])
            self._invalidate(packet, primitive, elements[max(size - by, 0) :] if by else ())

        return pop

    def _swapper(
        self, primitive: ir.Push | ir.Pop
    ) -> tuple[Callable[[Packet, int, int], None], tuple[int, ...]]:
        if primitive.of_unions:
            return self._swap_unions, self.program.union_stacks[primitive.stack].unions
        return self._swap_headers, self.program.stacks[primitive.stack].headers

    def _swap_headers(self, packet: Packet, one: int, other: int) -> None:
        a, b = self.layout.fields_of(one), self.layout.fields_of(other)
        fields, valid, widths = packet.fields, packet.valid, packet.variable_widths
        fields[a], fields[b] = fields[b], fields[a]
        valid[one], valid[other] = valid[other], valid[one]
        widths[one], widths[other] = widths[other], widths[one]

    def _swap_unions(self, packet: Packet, one: int, other: int) -> None:
        valid, members = packet.union_valid, packet.union_members
        valid[one], valid[other] = valid[other], valid[one]
        members[one], members[other] = members[other], members[one]
        unions = self.program.unions
        for a, b in zip(unions[one].headers, unions[other].headers, strict=True):
            self._swap_headers(packet, a, b)

    def _invalidate(
        self, packet: Packet, primitive: ir.Push | ir.Pop, elements: Sequence[int]
    ) -> None:
        if primitive.of_unions:
            return  # as in simple_switch, the state of the unions is that after the swaps
        for header in elements:
            self.layout.mark_invalid(packet, header)

    # ── Control ──

    @step.register
    def _(self, primitive: ir.Jump) -> Step:
        target = primitive.target
        return lambda _: target

    @step.register
    def _(self, primitive: ir.JumpIfZero) -> Step:
        condition, target = self.make.data(primitive.condition), primitive.target
        return lambda packet: target if condition(packet) == 0 else None

    @step.register
    def _(self, _: ir.NoOp) -> Step:
        return lambda _: None

    @step.register
    def _(self, primitive: ir.LogMessage) -> Step:
        trace = self.trace
        if trace is None:
            return lambda _: None
        values = [self.make.data(value) for value in primitive.values]

        def log(packet: Packet) -> None:
            text = primitive.text
            for value in values:
                text = text.replace("{}", str(value(packet)), 1)
            trace("log", text=text)

        return log

    @step.register
    def _(self, _: ir.Exit) -> Step:
        def leave(packet: Packet) -> None:
            packet.exit = True

        return leave

    @step.register
    def _(self, primitive: ir.Assert) -> Step:
        condition = self.make.boolean(primitive.condition)

        def check(packet: Packet) -> None:
            if not condition(packet):
                raise FailedAssertionError

        return check

    # ── Requests to the switch ──

    @step.register
    def _(self, primitive: ir.MarkToDrop) -> Step:
        spec = self.make.store(primitive.egress_spec)
        group = None if primitive.mcast_grp is None else self.make.store(primitive.mcast_grp)
        drop_port = self.program.drop_port

        def drop(packet: Packet) -> None:
            spec(packet, drop_port)
            if group is not None:
                group(packet, 0)

        return drop

    @step.register
    def _(self, primitive: ir.Truncate) -> Step:
        length = self.make.data(primitive.length)

        def truncate(packet: Packet) -> None:
            wanted = length(packet) & UINT64
            packet.truncated = wanted if packet.truncated is None else min(packet.truncated, wanted)

        return truncate

    @step.register
    def _(self, primitive: ir.Digest) -> Step:
        learn_list = self.make.data(primitive.learn_list)

        def digest(packet: Packet) -> None:
            packet.learn_list = _uint16(learn_list(packet))

        return digest

    @step.register
    def _(self, primitive: ir.Clone) -> Step:
        session, field_list = (
            self.make.data(primitive.session),
            self.make.data(primitive.field_list),
        )

        def clone(packet: Packet) -> None:
            packet.clone_session = _uint16(session(packet)) & 0x7FFF
            packet.clone_field_list = _uint16(field_list(packet))

        return clone

    @step.register
    def _(self, primitive: ir.Resubmit) -> Step:
        field_list = self.make.data(primitive.field_list)

        def resubmit(packet: Packet) -> None:
            packet.resubmit = _uint16(field_list(packet))

        return resubmit

    @step.register
    def _(self, primitive: ir.Recirculate) -> Step:
        field_list = self.make.data(primitive.field_list)

        def recirculate(packet: Packet) -> None:
            packet.recirculate = _uint16(field_list(packet))

        return recirculate


def _uint16(value: int) -> int:
    """The lower 16 bits, as BMv2 truncates a session or the id of a list."""
    return value & 0xFFFF


# ----------------------------------------------------------------------------
# Tables, conditionals and pipelines.

Visit = Callable[[Packet], ir.Node | None]
"""Runs a node and returns the next one."""


class PipelineUnit:
    """Runs ingress and egress."""

    def __init__(
        self,
        layout: FieldLayout,
        state: SwitchState,
        expressions: ExpressionCompiler,
        actions: ActionCompiler,
    ) -> None:
        self.layout = layout
        self.state = state
        self.make = expressions
        self.actions = actions
        self.trace = actions.trace
        self.log = actions.log
        program = layout.program
        self.bodies: list[Run] = [self._body(i) for i in range(len(program.actions))]
        self.visits: dict[ir.Node, Visit] = {}
        for i in range(len(program.tables)):
            self.visits[ir.Node(ir.NodeKind.TABLE, i)] = self._table(i)
        for i, conditional in enumerate(program.conditionals):
            self.visits[ir.Node(ir.NodeKind.CONDITIONAL, i)] = self._conditional(conditional)
        for i, call in enumerate(program.action_calls):
            self.visits[ir.Node(ir.NodeKind.ACTION_CALL, i)] = self._action_call(call)

    def run(self, pipeline: ir.Pipeline, packet: Packet) -> None:
        node, log = pipeline.initial, self.log
        if log is not None:
            log.line("debug", f"Pipeline '{pipeline.name}': start")
        while node is not None and not packet.exit:
            node = self.visits[node](packet)
        if log is not None:
            if node is not None:
                log.line("debug", "Packet is marked for exit, interrupting pipeline")
            log.line("debug", f"Pipeline '{pipeline.name}': end")

    def _body(self, number: int) -> Run:
        action, trace = self.layout.program.actions[number], self.trace
        if (log := self.log) is not None:
            body = log.action(number)
            lines = [[each] for each in body.primitives]
            run = self.actions.run_all(action.primitives, action.name, lines)

            def logged(packet: Packet) -> None:
                log.line("trace", body.title)
                run(packet)

            return logged
        run = self.actions.run_all(action.primitives, action.name)
        if trace is None:
            return run
        names = [(each.name, notation(each.name, each.width)) for each in action.parameters]

        def traced(packet: Packet) -> None:
            values = zip(names, packet.arguments, strict=True)
            arguments = {name: shown(value) for (name, shown), value in values}
            trace("action", action=action.name, arguments=arguments)
            run(packet)

        return traced

    def _conditional(self, conditional: ir.Conditional) -> Visit:
        condition, trace = self.make.boolean(conditional.condition), self.trace
        if_true, if_false = conditional.if_true, conditional.if_false
        if trace is None:
            return lambda packet: if_true if condition(packet) else if_false
        text = Text(self.layout.program).of(conditional.condition)

        def traced(packet: Packet) -> ir.Node | None:
            result = condition(packet)
            trace("if", name=conditional.name, condition=text, result=result)
            return if_true if result else if_false

        return traced

    def _action_call(self, call: ir.ActionCall) -> Visit:
        body, after = self.bodies[call.action], call.next

        def visit(packet: Packet) -> ir.Node | None:
            packet.arguments = ()
            body(packet)
            return after

        return visit

    def _table(self, index: int) -> Visit:
        table = self.state.tables[index]
        bodies, on_hit = self.bodies, self._on_hit(table)
        find, choose = self._lookup(index, table), self._choice(table.table)
        log = self.log

        def visit(packet: Packet) -> ir.Node | None:
            found = find(packet)
            action = choose(packet, table.default if found is None else found.action)
            if found is not None:
                on_hit(packet, found.index)
            if log is not None:
                log.found(index, found, action)
            if action is None:
                return table.next_node(None, hit=found is not None)
            packet.arguments = action.arguments
            bodies[action.action](packet)
            return table.next_node(action.action, hit=found is not None)

        return visit

    def _lookup(self, index: int, table: TableState) -> Callable[[Packet], RuntimeEntry | None]:
        """Finds the entry that a packet hits."""
        parts, trace = [self._key_part(key) for key in table.table.keys], self.trace
        if (log := self.log) is not None:

            def logged(packet: Packet) -> RuntimeEntry | None:
                values = [part(packet) for part in parts]
                log.looking_up(index, values)
                return table.lookup(values) if parts else None

            return logged
        if trace is None:
            if not parts:
                return lambda _: None
            return lambda packet: table.lookup([part(packet) for part in parts])
        names = [(key.name, notation(key.name, key.width)) for key in table.table.keys]

        def traced(packet: Packet) -> RuntimeEntry | None:
            values = [part(packet) for part in parts]
            found = table.lookup(values) if parts else None
            key = {name: shown(v) for (name, shown), v in zip(names, values, strict=True)}
            if found is None:
                trace("miss", table=table.table.name, key=key)
            else:
                trace("hit", table=table.table.name, key=key, entry=found.handle)
            return found

        return traced

    def _choice(self, table: ir.Table) -> Callable[[Packet, Target | None], ir.ActionEntry | None]:
        """The action of an entry's target; None for an empty group."""
        profile = self.state.profile_of(table)
        hashed: Callable[[Packet], int] | None = None
        log = self.log
        if profile is not None and profile.profile.selector is not None:
            assert table.action_profile is not None
            hashed = self.actions.calculations.compile(
                self.layout.program.selector_hash(table.action_profile)
            )

        def choose(packet: Packet, target: Target | None) -> ir.ActionEntry | None:
            if not isinstance(target, ProfileRef):
                return target
            assert profile is not None, "only indirect tables hold references"
            if not target.group:
                return profile.resolve(table, target.handle)
            if not profile.groups[target.handle]:
                return None
            assert hashed is not None, "only profiles with a selector have groups"
            member = profile.choose(target.handle, hashed(packet))
            if log is not None:
                log.line("debug", f"Choosing member {member} from group {target.handle}")
            return profile.resolve(table, member)

        return choose

    def _on_hit(self, table: TableState) -> Callable[[Packet, int], None]:
        """Updates on a hit before the entry's action: direct counter, direct meter, hit time."""
        steps: list[Callable[[Packet, int], None]] = []
        if table.counters is not None:
            counter = table.table.counter
            counters = self.layout.program.counters
            name = table.table.name if counter is None else counters[counter].name
            steps.append(self.actions.counter(name, table.counters))
        if table.table.meter is not None:
            result = self.state.meters[table.table.meter].array.result
            assert result is not None
            color = self.actions.meter(table.table.meter, result, direct=True)
            steps.append(color if self.trace is None else self.trace.changes(color))
        if table.ages is not None:
            last_hits = table.ages.last_hits

            def touch(packet: Packet, index: int) -> None:
                last_hits[index] = packet.hit_time

            steps.append(touch)
        if len(steps) == 1:
            return steps[0]

        def all_steps(packet: Packet, index: int) -> None:
            for step in steps:
                step(packet, index)

        return all_steps

    def _key_part(self, key: ir.TableKey) -> Callable[[Packet], int]:
        header = key.field.header
        if key.field.field == ir.VALID:
            return lambda packet: int(packet.valid[header])
        index, every = self.layout.slot(key.field).index, (1 << key.width) - 1
        # A field of an invalid header matches as 0, regardless of its value.
        return lambda packet: packet.fields[index] & every if packet.valid[header] else 0
