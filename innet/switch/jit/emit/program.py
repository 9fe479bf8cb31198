"""The whole emitted module: one function that runs a batch of packets through a program.

Its shape, with names as in the emitted source:

    while i < len(length):                   # packets, in arrival order
        if produced + room > len(out_length): break     # the caller comes back with a new buffer
        ... zero the fields, set the standard metadata
        while True: ... parser ... break     # leaves at accept or at an error
        ... verify checksums, ingress
        ... decide: dropped, one copy, or a multicast group's copies
        for copy in range(first_copy, last_copy):
            ... egress, update checksums, deparse to out[produced]

Programs whose packets come by again have another one (``emit_queue``).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered, pipeline
from innet.switch.jit.emit.arrival import Arrival
from innet.switch.jit.emit.copies import Copies
from innet.switch.jit.emit.expressions import Expressions, Value
from innet.switch.jit.emit.hashes import emit_hash, hash_arguments
from innet.switch.jit.emit.lookups import lookup_arguments
from innet.switch.jit.emit.queue import SENT, Queue
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.layout import Layout
from innet.switch.jit.liveness import live_fields
from innet.switch.jit.lower.actions import LONGEST
from innet.switch.jit.lower.program import lower_program
from innet.switch.jit.lower.vectorize import roll
from innet.switch.jit.passthrough import untouched_runs
from innet.switch.jit.ranges import find_wild_fields
from innet.switch.jit.register_places import RegisterPlaces
from innet.switch.jit.runtime import (
    bits,
    box_tree,
    core,
    hashes,
    masks,
    meters,
    prefixes,
    queue,
    random,
    wide,
    wide_functions,
)
from innet.switch.jit.traits import digests, draws, looked_up, queues
from innet.switch.jit.tree import mentions, walk


@dataclass(frozen=True, slots=True)
class Emitted:
    """What became of a program.

    Attributes:
        source: of the module; ``process`` in it is the function.
        loops: how many runs were recognized.
    """

    source: str
    loops: int


def argument_types(program: ir.Program, groups: Iterable[Any]) -> list[tuple[str, str]]:
    """(name, Numba type) of the emitted function's arguments, in order."""
    arguments = [
        ("packets" if queues(program) else "data", "uint8[:, ::1]"),
        ("length", "int32[::1]"),
        ("port", "int32[::1]"),
    ]
    if not queues(program):
        arguments.append(("first", "int64"))
    arguments.append(("out", "uint8[:, ::1]"))
    arguments += [(name, "int32[::1]") for name in SENT]
    arguments += [("statistics", "int64[::1]"), ("clock", "int64")]
    if not queues(program):
        arguments.append(("room", "int64"))
    names = ["group_start", "replica_port", "replica_rid"]
    names += ["sessions"] if queues(program) else []
    arguments += [(name, "int64[::1]") for name in names]
    for number, group in enumerate(groups):
        dtype = "int64" if group.matrix.dtype.itemsize == 8 else group.matrix.dtype.name
        arguments.append((f"r{number}", f"{dtype}[::1]"))
    arguments += [(f"c{number}", "int64[::1]") for number in range(len(program.counters))]
    if draws(program):
        arguments.append(("random_state", "int64[::1]"))
    for number in range(len(program.meters)):
        arguments += [(f"m{number}_rates", "float64[::1]"), (f"m{number}_cells", "int64[::1]")]
    arguments += hash_arguments(program)
    for index in looked_up(program):
        arguments += lookup_arguments(program, index)
    arguments += [(f"vs{number}", "int64[::1]") for number in range(len(program.value_sets))]
    return arguments


def emit(program: ir.Program, groups: tuple[Any, ...]) -> Emitted:
    """The module of a program of which ``unsupported`` names nothing structural.

    ``groups`` are the ``RegisterGroup``s of the switch's state, for their shapes.

    Raises:
        UnsupportedError: arithmetic that needs more than 64 bits.
    """
    rolled = lowered.Plan(*(roll(program, body) for body in lower_program(program).bodies))
    return _Emitter(program, rolled, groups).emit()


class _Emitter:
    def __init__(self, program: ir.Program, rolled: lowered.Plan, groups: tuple[Any, ...]) -> None:
        self.program = program
        self.plan = rolled
        self.groups = groups
        self.bodies = rolled.bodies
        self.queueing = queues(program)
        self.writer = Writer()
        untouched = untouched_runs(program, self.bodies)
        copied = {
            ir.FieldRef(header, field)
            for header, runs in untouched.items()
            for first, last in runs
            for field in range(first, last + 1)
        }
        self.live = live_fields(program, self.bodies, copied)
        self.layout = Layout(program, self.bodies, self.live, untouched)
        places = RegisterPlaces(program, tuple(tuple(group.registers) for group in groups))
        find_wild_fields(self.bodies, self.layout, places)
        self.expressions = Expressions(self.layout, self._hash, places)
        self.statements = Statements(self.writer, self.layout, self.expressions)
        self.queue = Queue(self.statements, rolled, self._scratch_bytes())
        self.arrival = Arrival(self.statements, rolled)
        self.copies = Copies(self.statements, rolled)

    def _hash(self, calculation: int) -> Value:
        kept = f"min(size - at, {LONGEST.name})" if mentions(self.bodies, LONGEST) else "size - at"
        payload = ("base + at", kept)
        return emit_hash(self.writer, self.expressions, payload, calculation)

    def emit(self) -> Emitted:
        arguments = argument_types(self.program, self.groups)
        names = ", ".join(name for name, _ in arguments)
        if self.queueing:
            self.writer.line(f"@njit({_OPTIONS})")
            self.queue.rows.keep()
            self.writer.blank()
            self.writer.blank()
        self.writer.line(f"@njit(SIGNATURE, {_OPTIONS})")
        start = len(self.writer.lines) + 1
        with self.writer.block(f"def process({names}):"):
            if digests(self.program):
                self.writer.line("digests = np.empty(0, np.int64)")
                self.writer.line("digested = int64(0)")
            for array in self.layout.arrays:
                self.writer.line(f"{array.name} = np.empty({array.count}, np.{array.dtype})")
            if self.queueing:
                self.queue.body()
            else:
                self._function()
            returned = ", ".join(name for name, _ in self._returned())
            self.writer.line(f"return {returned}")
        lines = self.writer.lines
        counts = sorted(self.writer.counts)
        lines[start:start] = [f"    lanes_{count} = hidden({count})" for count in counts]
        scratch = [text for text in lines if "scratch" in text]
        if all(text.lstrip().startswith(_SCRATCH) for text in scratch):
            lines[:] = [text for text in lines if text not in scratch]
        body = self.writer.source()
        types = ", ".join(kind for _, kind in arguments)
        returned_types = ", ".join(kind for _, kind in self._returned())
        head = [
            f'"""Emitted by innet from {self.program.name}; not to be edited."""',
            "",
            *_imports(body),
            "",
            *self._sizes(),
            f'SIGNATURE = "Tuple(({returned_types}))({types})"',
            "",
            "",
        ]
        loops = sum(isinstance(node, lowered.Loop) for node in walk(self.bodies))
        return Emitted("\n".join(head) + "\n" + body, loops)

    def _function(self) -> None:
        line = self.writer.line
        if self.program.hashes:
            line(f"scratch = np.empty({self._scratch_bytes()} + data.shape[1], np.uint8)")
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
            self._packet()

    def _returned(self) -> list[tuple[str, str]]:
        """(source, Numba type) of what the function returns."""
        returned = [("i", "int64"), ("produced", "int64")]
        if self.queueing:
            returned = [("produced", "int64"), ("out", "uint8[:, ::1]")]
            returned += [(name, "int32[::1]") for name in SENT]
        if digests(self.program):
            returned.append(("digests[:digested]", "int64[::1]"))
        return returned

    # ── One packet ──

    def _packet(self) -> None:
        self.arrival.count()
        self.arrival.zero()
        self.arrival.set_ingress_port()
        self.arrival.set_received()
        self.arrival.parse()
        self.arrival.set_parser_error()
        self.arrival.zero_arrays_of_absent_headers()
        self.arrival.verify()
        self.writer.line("# ingress")
        self.statements.pipeline(self.plan.ingress)
        self.statements.drop_failed(self.plan.ingress, "dropped_ingress")
        self.copies.emit()

    # ── Sizes ──

    def _sizes(self) -> list[str]:
        sizes = [f"GROWTH = {self._growth()}  # bytes by which a packet may leave longer"]
        if self.queueing:
            sizes.append(f"ROW = {self.queue.row.width}  # words of a packet that waits")
        return sizes

    def _growth(self) -> int:
        """Headers that may be added or get another's varbit, and headers emitted more than once."""
        kinds = (lowered.SetValid, lowered.VariableWidth)
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
        """Enough for every field of the program and a vector register beyond."""
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


_SCRATCH = "scratch = "
#: Of each emitted function. Neither Python nor C calls it through Numba (see ``object_code``).
_OPTIONS = (
    'boundscheck=False, error_model="numpy", nogil=True, no_cpython_wrapper=True, '
    "no_cfunc_wrapper=True, pipeline_class=StraightPipeline"
)
#: Where emitted code imports from.
_MODULES = (
    pipeline,
    core,
    bits,
    box_tree,
    hashes,
    masks,
    meters,
    prefixes,
    queue,
    random,
    wide,
    wide_functions,
)


def _imports(body: str) -> list[str]:
    """What emitted code imports, for the names that it uses."""
    words = set(re.findall(r"\w+", body))
    lines = ["import numpy as np", "from numba import int64, njit", ""]
    for module in _MODULES:
        used = [name for name in module.__all__ if name in words]
        if used:
            listed = textwrap.wrap(", ".join(used) + ",", 94, break_long_words=False)
            lines += [f"from {module.__name__} import (", *(f"    {each}" for each in listed), ")"]
    return lines
