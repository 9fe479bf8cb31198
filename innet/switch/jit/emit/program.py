"""The whole emitted module: one function that runs a batch of packets through a program.

``emit`` lowers a program, rolls its runs into loops, lays out its fields, and writes the module.
For calls without times the function of most programs is ``PlainLoop``'s. Its shape, with names as
in the emitted source:

    while i < len(length):                   # packets, in arrival order
        if produced + room > len(out_length): break     # the caller comes back with a new buffer
        ... zero the fields, set the standard metadata
        while True: ... parser ... break     # leaves at accept or at an error
        ... verify checksums, ingress
        ... decide: dropped, one copy, or a multicast group's copies
        for copy in range(first_copy, last_copy):
            ... egress, update checksums, deparse to out[produced]

Programs that clone, resubmit or recirculate have another one (``queue.QueueLoop``). So has every
program for calls with times.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from innet.switch import ir
from innet.switch.engine import InstanceType
from innet.switch.ir.tree import mentions, walk
from innet.switch.jit import codegen, lowered
from innet.switch.jit.analysis import live_fields, passthrough_runs, written_fields
from innet.switch.jit.emit.expressions import Expressions, Value, find_overflowing_fields
from innet.switch.jit.emit.hashes import emit_hash, hash_arguments, sum_of
from innet.switch.jit.emit.headers import emit_clear_varbits
from innet.switch.jit.emit.layout import ArrayVariable, RegisterLayout, VariableLayout
from innet.switch.jit.emit.lookups import lookup_arguments
from innet.switch.jit.emit.packet import UNLIMITED, PacketLoop
from innet.switch.jit.emit.queue import SENT, QueueLoop
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.lower.actions import MAX_LENGTH
from innet.switch.jit.lower.headers import PACKET_LENGTH, packet_scalars
from innet.switch.jit.lower.notes import SILENT, RecordNotes
from innet.switch.jit.lower.program import lower_program
from innet.switch.jit.lower.vectorize import reroll
from innet.switch.jit.lowered import WIDTH
from innet.switch.jit.runtime import (
    core,
    externs,
    hashes,
    lookups,
    queue,
    wide,
)
from innet.switch.jit.runtime import (
    recording as recording_runtime,
)
from innet.switch.jit.traits import searched_tables, uses_digests, uses_random


@dataclass(frozen=True, slots=True)
class Emitted:
    """The emitted module of a program.

    Attributes:
        source: of the module; ``process`` in it is the function.
        loops: number of recognized runs.
    """

    source: str
    loops: int


def argument_types(
    program: ir.Program, groups: Iterable[Any], queued: bool, recording: bool = False
) -> list[tuple[str, str]]:
    """(name, Numba type) of the emitted function's arguments, in order.

    Arguments before ``first`` are the received packets, those before ``statistics`` the output.
    Then come arguments that differ between calls, and from ``priorities`` on those that the control
    plane changes.
    """
    arguments = [
        ("packets", "uint8[::1]") if queued else ("data", "uint8[:, ::1]"),
        ("length", "int32[::1]"),
        ("port", "int32[::1]"),
        ("first", "int64"),
        ("out", "uint8[:, ::1]"),
        *((name, "int32[::1]") for name in SENT),
    ]
    arguments += [("out_time", "int64[::1]"), ("out_extra", "int32[::1]")] if queued else []
    arguments += [("statistics", "int64[::1]"), ("clock", "int64"), ("room", "int64")]
    if queued:
        arguments += [("times", "int64[::1]"), ("extra", "int32[::1]")]
        arguments += [(name, "int64") for name in ("serial", "until", "timed", "filled")]
        arguments += [("stride", "int64"), ("span", "int64"), ("traffic", "int64[::1]")]
        arguments += [("pool", "int64[::1]"), ("store", "uint8[::1]")]
        arguments += [(name, "int64[::1]") for name in ("waiting", "origins", "digests", "queues")]
    if recording:
        arguments.append(("events", "int64[::1]"))
    arguments += [("priorities", "int64")]
    names = ["group_start", "replica_port", "replica_rid", *(["sessions"] if queued else [])]
    arguments += [(name, "int64[::1]") for name in names]
    for number, group in enumerate(groups):
        dtype = "int64" if group.matrix.dtype.itemsize == 8 else group.matrix.dtype.name
        arguments.append((f"r{number}", f"{dtype}[::1]"))
    arguments += [(f"c{number}", "int64[::1]") for number in range(len(program.counters))]
    if uses_random(program):
        arguments.append(("random_state", "int64[::1]"))
    for number in range(len(program.meters)):
        arguments += [(f"m{number}_rates", "float64[::1]"), (f"m{number}_cells", "int64[::1]")]
    arguments += hash_arguments(program)
    for index in searched_tables(program):
        arguments += lookup_arguments(program, index)
    arguments += [(f"vs{number}", "int64[::1]") for number in range(len(program.value_sets))]
    return arguments


def emit(
    program: ir.Program, groups: tuple[Any, ...], queued: bool, recording: bool = False
) -> Emitted:
    """The module of a program against which ``compiler.structural_reasons`` says nothing.

    Args:
        program: to be emitted.
        groups: the ``RegisterGroup``s of the switch's state, for their shapes.
        queued: packets wait in queues between ingress and egress.
        recording: it records what happens to packets (``records``); it has queues then.

    Raises:
        UnsupportedError: arithmetic that needs more than 64 bits.
    """
    bodies = lower_program(program, RecordNotes(program) if recording else SILENT).bodies
    rolled = lowered.Regions(*(reroll(program, body) for body in bodies))
    return _ModuleWriter(program, rolled, groups, queued, recording).emit()


class _ModuleWriter:
    """Analyzes a lowered program, then writes its module."""

    def __init__(
        self,
        program: ir.Program,
        rolled: lowered.Regions,
        groups: tuple[Any, ...],
        queued: bool,
        recording: bool,
    ) -> None:
        self.program = program
        self.groups = groups
        self.bodies = rolled.bodies
        self.writer = Writer(recording=recording)
        # Which fields need a variable, and where fields and registers are.
        passthrough = {} if recording else passthrough_runs(program, self.bodies)
        copied = {
            ir.FieldRef(header, field)
            for header, runs in passthrough.items()
            for first, last in runs
            for field in range(first, last + 1)
        }
        live = live_fields(program, self.bodies, copied)
        if recording:  # each change is told
            live.update(*map(program.fields_of, range(len(program.headers))))
        self.layout = VariableLayout(program, self.bodies, live, passthrough)
        registers = RegisterLayout(program, tuple(tuple(group.registers) for group in groups))
        find_overflowing_fields(self.bodies, self.layout, registers)
        # Who writes what.
        self.expressions = Expressions(self.layout, self._hash, registers)
        statements = Statements(self.writer, self.layout, self.expressions)
        scratch = self._scratch_bytes()
        self.queue = QueueLoop(statements, rolled, scratch) if queued else None
        self.loop = self.queue or PlainLoop(statements, rolled, scratch)

    def _hash(self, calculation: int) -> Value:
        size = "size - at"
        if mentions(self.bodies, MAX_LENGTH):
            size = f"min({size}, {MAX_LENGTH.name})"
        return emit_hash(self.writer, self.expressions, ("base + at", size), calculation)

    def emit(self) -> Emitted:
        """The module."""
        queued, recording = self.queue is not None, self.writer.recording
        arguments = argument_types(self.program, self.groups, queued, recording)
        self._functions([name for name, _ in arguments])
        self._drop_unused_scratch()
        body = self.writer.source()
        types = ", ".join(kind for _, kind in arguments)
        returned_types = ", ".join(kind for _, kind in self._returned())
        head = [
            f'"""Emitted by innet from {self.program.name}; not to be edited."""',
            "",
            *_imports(body, _MODULES if self.writer.recording else _MODULES[1:]),
            "",
            *self._sizes(),
            f'SIGNATURE = "Tuple(({returned_types}))({types})"',
            "",
            "",
        ]
        loops = sum(isinstance(node, lowered.Loop) for node in walk(self.bodies))
        return Emitted("\n".join(head) + "\n" + body, loops)

    def _functions(self, arguments: list[str]) -> None:
        """``process``, and before it the functions that only it calls."""
        line = self.writer.line
        if self.queue:
            line(f"@njit({_OPTIONS})")
            self.queue.rows.emit_keep()
            self.writer.blank()
            self.writer.blank()
        line(f"@njit(SIGNATURE, {_OPTIONS})")
        start = len(self.writer.lines) + 1
        with self.writer.block(f"def process({', '.join(arguments)}):"):
            if uses_digests(self.program) and not self.queue:
                line("digests = np.empty(0, np.int64)")
                line("digested = int64(0)")
            for array in self.layout.arrays:
                line(f"{array.name} = np.empty({array.count}, np.{array.dtype})")
            self.loop.emit()
            line(f"return {', '.join(name for name, _ in self._returned())}")
        # The lengths of the loops over arrays, which only now are all known.
        lengths = [
            f"    lanes_{count} = opaque({count})" for count in sorted(self.writer.loop_counts)
        ]
        self.writer.lines[start:start] = lengths

    def _drop_unused_scratch(self) -> None:
        """Remove the scratch buffer where it is only made: no hash needs its bytes in a row."""
        lines = self.writer.lines
        scratch = [text for text in lines if "scratch" in text]
        if all(text.lstrip().startswith("scratch = ") for text in scratch):
            lines[:] = [text for text in lines if text not in scratch]

    def _returned(self) -> list[tuple[str, str]]:
        """(source, Numba type) of what the function returns."""
        returned = [("i", "int64"), ("produced", "int64")]
        if self.queue:
            returned += [("wanted", "int64"), ("needed", "int64")]
        if self.writer.recording:
            returned += [("recorded", "int64")]
        if uses_digests(self.program) and not self.queue:
            returned.append(("digests[:digested]", "int64[::1]"))
        return returned

    # ── Sizes ──

    def _sizes(self) -> list[str]:
        sizes = [f"GROWTH = {self._growth()}  # bytes by which a packet may leave longer"]
        words = self.queue.row.width if self.queue else 0
        sizes.append(f"ROW = {words}  # words of a packet that waits")
        return sizes

    def _growth(self) -> int:
        """Headers that may be added or get another's varbit, and headers emitted more than once."""
        kinds = (lowered.SetValid, lowered.VarbitWidth)
        added = {node.header for node in walk(self.bodies) if isinstance(node, kinds)}
        order = list(self.program.deparser.order)
        repeated = [header for i, header in enumerate(order) if header in order[:i]]
        return sum(map(self._most_bits, [*added, *repeated])) // 8

    def _most_bits(self, header: int) -> int:
        """The greatest width of a header, whichever other varbit field is copied into its own."""
        kind = self.program.type_of(header)
        return kind.width + (self._widest_variable() if kind.variable is not None else 0)

    def _widest_variable(self) -> int:
        fields = [field for kind in self.program.header_types for field in kind.fields]
        return max((field.width for field in fields if field.variable), default=0)

    def _scratch_bytes(self) -> int:
        """Room for every field of the program, and for one vector register past the end."""
        bits = 0
        for calculation in self.program.hashes:
            for part in calculation.inputs:
                match part:
                    case ir.FieldRef(_, ir.VALID):
                        bits += 1
                    case ir.FieldRef():
                        field = self.program.field(part)
                        bits += self._widest_variable() if field.variable else field.width
                    case ir.HeaderRef(header):
                        bits += self._most_bits(header)
                    case ir.CalculationConstant(_, width):
                        bits += width
        return bits // 8 + 64


# ── The loop of programs whose packets pass once ─────────────────────────────────────────────────


class PlainLoop(PacketLoop):
    """Each packet through the pipeline once, its copies through egress."""

    def emit(self) -> None:
        """Run all packets of a batch until the output buffer is full."""
        line = self.writer.line
        if self.program.hashes:
            line(f"scratch = np.empty({self.scratch} + data.shape[1], np.uint8)")
        line("stride = data.shape[1]")
        line("out_stride = out.shape[1]")
        line("produced = 0")
        line("i = first")
        with self.writer.block("while i < len(length):"):
            with self.writer.block("if produced + room > len(out_length):"):
                line("break")
            line("base = i * stride")
            line("size = int64(length[i])")
            line("arrived = int64(port[i])")
            line("i += 1")
            self._ingress()
            self.digest()
            self._traffic_manager()
            self._egress()

    def _ingress(self) -> None:
        self.receive()
        self.reset()
        self.set_ingress_port()
        self.set_packet_length()
        self.set_ingress_timestamp()
        self.parse()
        self.set_parser_error()
        self.zero_arrays_of_absent_headers()
        self.verify()
        self.ingress()

    # ── Where a packet goes ──

    def _traffic_manager(self) -> None:
        """Drop the packet, or say which copies of it there are: ``first_copy`` to ``last_copy``."""
        group = self.program.standard.mcast_grp
        if group is None:
            self._unicast()
        else:
            name = self.expressions.field_text(group)
            with self.writer.block(f"if {name} != 0:"):
                self._multicast(name)
            with self.writer.block("else:"):
                self._unicast()
        self._drop_by_priority()

    def _multicast(self, group: str) -> None:
        self.find_copies(group)
        with self.writer.block("if copies == 0:"):
            self.count("unknown_groups")
            self.writer.line("continue")
        if self.uses(MAX_LENGTH):
            # What ingress truncated is not cut in the copies.
            self.writer.line(f"{MAX_LENGTH.name} = {UNLIMITED}")
        self.set_constant(self.program.standard.instance_type, InstanceType.REPLICATED)

    def _unicast(self) -> None:
        line = self.writer.line
        spec = self.expressions.field_text(self.program.standard.egress_spec)
        with self.writer.block(f"if {spec} == {self.program.drop_port}:"):
            self.count("dropped_ingress")
            line("continue")
        line("copies = 0")
        line("first_copy = 0")
        line("last_copy = 1")
        self.set_constant(self.program.standard.instance_type, InstanceType.NORMAL)

    def _drop_by_priority(self) -> None:
        """simple_switch drops packets for a queue that ports lack."""
        priority = self.program.standard.priority
        if priority is None or priority not in self.live:
            return
        with self.writer.block(f"if {self.expressions.field_text(priority)} >= priorities:"):
            self.count("dropped_ingress", "last_copy - first_copy")
            self.writer.line("continue")

    # ── Egress ──

    def _egress(self) -> None:
        line = self.writer.line
        line("# egress")
        line(f"leaves = {self.expressions.field_text(self.program.standard.egress_spec)}")
        # Each copy starts from what ingress left.
        saved = self._saved_between_copies()
        for name in saved:
            line(f"{name}_kept = {name}")
        arrays = self._arrays_saved_between_copies()
        for array in arrays:
            line(f"{array.name}_kept = {array.name}.copy()")
        with (
            self._sums(arrays),
            self.writer.block("for copy_number in range(first_copy, last_copy):"),
        ):
            for name in saved:
                line(f"{name} = {name}_kept")
            for array in arrays:
                # A loop: what Numba says of arrays of other lengths takes it seconds to compile.
                with self.writer.block(f"for element in range(len({array.name})):"):
                    line(f"{array.name}[element] = {array.name}_kept[element]")
            with self.writer.block("if copies > 0:"):
                line("leaves = replica_port[copy_number]")
                rid = self.program.standard.egress_rid
                self.statements.set_field(rid, "replica_rid[copy_number]", 0, 0xFFFF)
                emit_clear_varbits(self.writer, self.expressions)
            self.set_egress_metadata()
            self.egress()
            self.update()
            self.deparse("produced * out_stride")
            self.send("i - 1")

    @contextmanager
    def _sums(self, changed: list[ArrayVariable]) -> Iterator[None]:
        """What is written inside sums each array once for all copies, unless they change it."""
        if self.program.standard.mcast_grp is None:
            yield
            return
        before = len(self.writer.lines)
        self.expressions.summed_once = {
            each: False for each in self.layout.arrays if each not in changed
        }
        yield
        used = [each for each, needed in self.expressions.summed_once.items() if needed]
        self.expressions.summed_once = {}
        indent = "    " * self.writer.depth
        self.writer.lines[before:before] = [f"{indent}{sum_of(each)} = -1" for each in used]

    def _saved_between_copies(self) -> list[str]:
        """Variables that egress changes and that the next copy needs as after ingress."""
        if self.program.standard.mcast_grp is None:
            return []
        bodies = (self.lowered.egress, self.lowered.update)
        fields, headers = written_fields(bodies)
        names = [
            self.layout.name(field.header, field.field)
            for field in sorted(fields, key=lambda field: (field.header, field.field))
            if (field in self.live or field.field == WIDTH)
            and self.layout.array(field.header, field.field) is None
        ]
        names += [self.layout.name(header, ir.VALID) for header in sorted(headers)]
        names += [each.name for each in (PACKET_LENGTH, MAX_LENGTH) if mentions(bodies, each)]
        return names + [scalar.name for scalar in packet_scalars(self.program, bodies)]

    def _arrays_saved_between_copies(self) -> list[ArrayVariable]:
        if self.program.standard.mcast_grp is None:
            return []
        fields, _ = written_fields((self.lowered.egress, self.lowered.update))
        written = {self.layout.array(field.header, field.field) for field in fields}
        return [array for array in self.layout.arrays if array in written]


# ── The head of the module ───────────────────────────────────────────────────────────────────────

#: Of each emitted function. Neither Python nor C calls it through Numba (see ``codegen``).
_OPTIONS = (
    'boundscheck=False, error_model="numpy", nogil=True, no_cpython_wrapper=True, '
    "no_cfunc_wrapper=True, pipeline_class=StraightPipeline"
)
#: Where emitted code imports from; the first is for recording builds.
_MODULES = (recording_runtime, codegen, core, externs, hashes, lookups, queue, wide)


def _imports(body: str, modules: Iterable[Any]) -> list[str]:
    """What emitted code imports, for the names that it uses."""
    words = set(re.findall(r"\w+", body))
    lines = ["import numpy as np", "from numba import int64, njit", ""]
    for module in modules:
        used = [name for name in module.__all__ if name in words]
        if used:
            listed = textwrap.wrap(", ".join(used) + ",", 94, break_long_words=False)
            lines += [f"from {module.__name__} import (", *(f"    {each}" for each in listed), ")"]
    return lines
