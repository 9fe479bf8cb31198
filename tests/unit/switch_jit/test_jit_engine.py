"""The compiled engine as its callers see it: batches, buffers, refusals, control-plane changes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.engines import agree
from support.state_fuzzer import StateFuzzer
from support.tiers import seeds, tiered

from innet.core.errors import InputError, UnsupportedError
from innet.core.packets import PacketBatch
from innet.switch import inline, ir
from innet.switch.engine import SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine, compiler

PROGRAMS = Path(__file__).parents[2] / "programs"


def made(program: ir.Program) -> tuple[SwitchState, JitEngine]:
    state = SwitchState(program, np.random.default_rng(0))
    return state, JitEngine(program, state)


@pytest.fixture(scope="module")
def tables() -> ir.Program:
    return load_program(PROGRAMS / "jit_tables.json")


@pytest.fixture(scope="module")
def runs() -> ir.Program:
    return load_program(PROGRAMS / "jit_runs.json")


def action(program: ir.Program, name: str) -> int:
    return next(i for i, each in enumerate(program.actions) if each.name.endswith(name))


def table(state: SwitchState, name: str) -> int:
    return next(i for i, each in enumerate(state.tables) if each.table.name.endswith(name))


def group(state: SwitchState, number: int, ports: list[int]) -> None:
    state.replication.create_group(number)
    for rid, port in enumerate(ports):
        state.replication.associate(number, state.replication.create_node(rid, [port]))


PLAIN = bytes([0, 5]) + bytes(8)  # header first_t of jit_tables.p4, nothing after it


def test_empty_batch(tables: ir.Program) -> None:
    _, engine = made(tables)
    assert len(engine.process(PacketBatch.empty())) == 0
    assert len(engine.process(PacketBatch.empty(100))) == 0


@pytest.mark.parametrize("size", [0, 1, 9, 10, 1500, 10_000])
def test_packets_of_any_length_pass(tables: ir.Program, size: int) -> None:
    state, engine = made(tables)
    data = (PLAIN + bytes(range(256)) * 40)[:size]
    out = engine.process(PacketBatch.from_packets([(1, data)])).to_packets()
    ((port, sent),) = out
    assert port == 0
    header, mark = (10, 8) if size >= 10 else (0, 8)
    assert len(sent) == len(data) + mark
    assert sent[header + mark :] == data[header:]
    assert state.statistics.bytes_out == len(sent)


def test_lengths_out_of_bounds_are_refused(tables: ir.Program) -> None:
    _, engine = made(tables)
    good = PacketBatch.from_packets([(1, PLAIN)])
    for length in (-1, len(PLAIN) + 1):
        with pytest.raises(InputError, match="packet lengths must be in"):
            engine.process(dataclasses.replace(good, length=np.array([length], np.int32)))


def test_output_belongs_to_the_caller(tables: ir.Program) -> None:
    _, engine = made(tables)
    kept = [engine.process(PacketBatch.from_packets([(1, PLAIN + bytes([i]))])) for i in range(20)]
    assert [batch.to_packets()[0][1][-1] for batch in kept] == list(range(20))
    view = kept[3].data[0, :4]
    held = view.tolist()
    del kept
    for _ in range(20):
        engine.process(PacketBatch.from_packets([(1, bytes([9]) * 300)]))
    assert view.tolist() == held


def test_dropped_output_is_used_again(tables: ir.Program) -> None:
    _, engine = made(tables)
    batch = PacketBatch.from_packets([(1, PLAIN)])
    first = engine.process(batch).data.ctypes.data
    assert engine.process(batch).data.ctypes.data == first


@pytest.mark.parametrize("name", ["jit_runs", "queue_growth"])
def test_long_packets_after_many_short_ones(name: str) -> None:
    """A row for each of those, as long as these, would be 4 GB."""
    state, engine = made(load_program(PROGRAMS / f"{name}.json"))
    group(state, 0, [1, 2, 3])
    short = engine.process(PacketBatch.uniform(np.zeros((40_000, 16), np.uint8), 1))
    assert len(short) >= 40_000
    sent = engine.process(PacketBatch.uniform(np.zeros((2, 100_000), np.uint8), 1))
    assert len(sent) >= 2
    assert sent.data.base is not None
    assert sent.data.base.nbytes < 20_000_000


def test_many_packets_after_one_that_grew() -> None:
    """20,000 packets with room for as much as that one grew would be 330 MB."""
    _, engine = made(load_program(PROGRAMS / "queue_growth.json"))
    (grown,) = engine.process(PacketBatch.from_packets([(1, b"\x0f\xff")])).to_packets()
    assert len(grown[1]) == 2 + 2 * 0xFFF
    sent = engine.process(PacketBatch.uniform(np.zeros((20_000, 16), np.uint8), 1))
    assert len(sent) == 20_000
    assert sent.data.base is not None
    assert sent.data.base.nbytes < 2_000_000


def test_multicast_beyond_the_buffer(runs: ir.Program) -> None:
    """More copies than packets came in: the engine comes back for more room."""
    state, engine = made(runs)
    group(state, 1, list(range(40)))
    packet = bytes([11, 0, 0, 0]) + bytes(range(250)) * 2
    for _ in range(2):
        out = engine.process(PacketBatch.from_packets([(1, packet)] * 30))
        assert out.port.tolist() == list(range(40)) * 30
    assert state.statistics.replicated == 2 * 30 * 40


def run_inline(engine: JitEngine, memory: PacketBatch, packets: list[tuple[int, bytes]]):
    """What compiled code makes of ``packets``, and in how many parts."""
    for row, (port, data) in enumerate(packets):
        memory.data[row, : len(data)] = np.frombuffer(data, np.uint8)
        memory.length[row], memory.port[row] = len(data), port
    running = engine.inline(memory)
    assert running is not None
    program = running.begin()
    sent, parts, first = [], 0, 0
    while first < len(packets):
        first, produced, failed = inline.run_inline(program, first, len(packets), 77)
        assert failed == 0
        out = PacketBatch(program.out, program.out_length, program.out_port)
        sent += out.take(np.arange(produced)).to_packets()
        parts += 1
    running.end()
    return sent, parts


@pytest.mark.parametrize("name", ["jit_tables", "jit_runs"])
def test_inline_in_compiled_code(name: str) -> None:
    program = load_program(PROGRAMS / f"{name}.json")
    fuzzer = StateFuzzer(program, np.random.default_rng(3))
    memory = PacketBatch(
        np.zeros((64, 10_000), np.uint8), np.zeros(64, np.int32), np.zeros(64, np.int32)
    )
    (state, engine), (other, reference) = made(program), made(program)
    for _ in range(4):
        fuzzer.fill([state, other], entries=12)
        packets = fuzzer.packets(60)
        sent, _ = run_inline(engine, memory, packets)
        other.clock = 77
        assert sent == reference.process(PacketBatch.from_packets(packets)).to_packets()
        assert state.clock == 77
        agree(state, other)
    assert state.statistics == other.statistics
    packets = fuzzer.packets(5)  # and by either way in turns
    batches = [each.process(PacketBatch.from_packets(packets)) for each in (engine, reference)]
    assert batches[0].to_packets() == batches[1].to_packets()


def test_inline_multicast_beyond_the_buffer(runs: ir.Program) -> None:
    (state, engine), (other, reference) = made(runs), made(runs)
    memory = PacketBatch(
        np.zeros((30, 504), np.uint8), np.zeros(30, np.int32), np.zeros(30, np.int32)
    )
    packets = [(1, bytes([11, 0, 0, 0]) + bytes(range(250)) * 2)] * 30
    for copies in (40, 50):
        for each in (state, other):
            if copies == 50:
                each.replication.destroy_group(1)
            group(each, 1, list(range(copies)))
        sent, parts = run_inline(engine, memory, packets)
        assert sent == reference.process(PacketBatch.from_packets(packets)).to_packets()
        assert [port for port, _ in sent] == list(range(copies)) * 30
        assert parts > 1


@pytest.mark.parametrize("name", ["jit_copies", "jit_digests"])
def test_what_takes_python_is_not_inlined(name: str) -> None:
    program = load_program(PROGRAMS / f"{name}.json")
    memory = PacketBatch.empty(100)
    assert made(program)[1].inline(memory) is None
    state = SwitchState(program, np.random.default_rng(0))
    assert InterpretEngine(program, state).inline(memory) is None


def test_control_plane_changes_are_seen_at_once(tables: ir.Program) -> None:
    state, engine = made(tables)
    exact = state.tables[table(state, "exact_table")]
    batch = PacketBatch.from_packets([(4, PLAIN)])
    assert engine.process(batch).port.tolist() == [0]
    mark = action(tables, "exact_mark")
    matches = [ir.ExactMatch(5), ir.ExactMatch(0), ir.ExactMatch(4)]
    handle = exact.add(matches, ir.ActionEntry(mark, (1, 77)), 0)
    assert engine.process(batch).port.tolist() == [77]
    exact.modify(handle, ir.ActionEntry(mark, (1, 78)))
    assert engine.process(batch).port.tolist() == [78]
    assert exact.counters is not None
    assert exact.counters[0].tolist() == [2, 2 * len(PLAIN)]
    exact.delete(handle)
    exact.set_default(ir.ActionEntry(action(tables, "NoAction"), ()))
    assert engine.process(batch).port.tolist() == [0]


def test_what_is_missing_is_named() -> None:
    program = load_program(PROGRAMS / "jit_tables.json")
    foreign = ir.ExternCall("teleport")
    first = dataclasses.replace(program.actions[0], primitives=(foreign,))
    program = dataclasses.replace(
        program, actions=(first, *program.actions[1:]), fingerprint="with an extern"
    )
    reason = f"the primitive teleport (action {first.name})"
    assert JitEngine.unsupported(program) == [reason]
    with pytest.raises(UnsupportedError, match="teleport"):
        made(program)


def with_action(program: ir.Program, primitives: tuple[ir.Primitive, ...]) -> ir.Program:
    """A program whose only action writes to registers of 64 bits; its bodies need no packet."""
    call = ir.ActionCall("call", 0, None)
    return dataclasses.replace(
        program,
        registers=(ir.RegisterArray("out", 512, 64),),
        counters=(),
        tables=(),
        conditionals=(),
        actions=(ir.Action("run", (), primitives),),
        action_calls=(call,),
        ingress=ir.Pipeline("ingress", ir.Node(ir.NodeKind.ACTION_CALL, 0)),
        egress=ir.Pipeline("egress", None),
        fingerprint=f"{program.fingerprint} {primitives!r}",
    )


def registers_of(program: ir.Program, packets: list[bytes]) -> None:
    """Both engines leave the same registers behind after each packet."""
    states = [SwitchState(program, np.random.default_rng(0)) for _ in range(2)]
    interpret, jit = InterpretEngine(program, states[0]), JitEngine(program, states[1])
    for packet in packets:
        batch = PacketBatch.from_packets([(1, packet)])
        assert interpret.process(batch).to_packets() == jit.process(batch).to_packets()
        np.testing.assert_array_equal(states[0].registers[0], states[1].registers[0])


class Expressions:
    """Random expressions over the fields of header ``x`` of jit_expressions.p4, masked by p4c's
    habit.
    """

    def __init__(self, program: ir.Program, rng: np.random.Generator) -> None:
        self.rng = rng
        header = next(i for i, each in enumerate(program.headers) if each.name == "x")
        self.fields = [ir.FieldRef(header, i) for i in range(len(program.type_of(header).fields))]

    def data(self, depth: int) -> ir.DataExpression:
        choice = self.rng.integers(0, 12) if depth else self.rng.integers(0, 2)
        kind = ir.DataOperator
        if choice == 0:
            return ir.Const(int(self.rng.choice([0, 1, 2, 3, 7, 255, 256, 1 << 31, (1 << 63) - 1])))
        if choice == 1:
            return self.fields[self.rng.integers(len(self.fields))]
        if choice == 2:
            return ir.Choice(self.condition(depth - 1), self.data(depth - 1), self.data(depth - 1))
        if choice == 3:
            width = int(self.rng.choice([3, 8, 16, 31, 32, 33, 63, 64]))
            casts = [kind.TWO_COMP_MOD, kind.TWO_COMP_MOD, kind.SAT_CAST, kind.USAT_CAST]
            cast = casts[self.rng.integers(len(casts))]
            return ir.Binary(cast, self.data(depth - 1), ir.Const(width))
        if choice == 4:
            return ir.BoolToData(self.condition(depth - 1))
        if choice == 5:
            return self.masked(ir.Invert(self.data(depth - 1)))
        if choice == 6:
            amount = ir.Const(int(self.rng.choice([0, 1, 7, 31, 32, 63, 64, 70])))
            shift = (kind.SHIFT_LEFT, kind.SHIFT_RIGHT)[self.rng.integers(2)]
            return self.masked(ir.Binary(shift, self.data(depth - 1), amount))
        if choice == 7:
            shift = (kind.SHIFT_LEFT, kind.SHIFT_RIGHT)[self.rng.integers(2)]
            amounts = self.fields[-1]  # 8 bits
            return self.masked(ir.Binary(shift, self.data(depth - 1), amounts))
        operators = [kind.ADD, kind.SUB, kind.MUL, kind.AND, kind.OR, kind.XOR]
        operator = operators[self.rng.integers(len(operators))]
        return self.masked(ir.Binary(operator, self.data(depth - 1), self.data(depth - 1)))

    def masked(self, expression: ir.DataExpression) -> ir.DataExpression:
        if self.rng.random() < 0.2:
            return expression
        width = int(self.rng.choice([1, 8, 16, 32, 48, 63, 64]))
        return ir.Binary(ir.DataOperator.AND, expression, ir.Const((1 << width) - 1))

    def condition(self, depth: int) -> ir.BoolExpression:
        choice = self.rng.integers(0, 5) if depth > 0 else 0
        if choice <= 1:
            comparison = list(ir.Comparison)[self.rng.integers(6)]
            return ir.Compare(comparison, self.data(max(depth, 0)), self.data(max(depth, 0)))
        if choice == 2:
            return ir.DataToBool(self.data(depth - 1))
        if choice == 3:
            return ir.Not(self.condition(depth - 1))
        connective = list(ir.Connective)[self.rng.integers(4)]
        return ir.Logical(connective, self.condition(depth - 1), self.condition(depth - 1))


@pytest.mark.parametrize("seed", seeds(4))
def test_random_expressions(seed: int) -> None:
    base = load_program(PROGRAMS / "jit_expressions.json")
    rng = np.random.default_rng([seed, 9])
    expressions = Expressions(base, rng)
    found: list[ir.DataExpression] = []
    refused = 0
    while len(found) < 40:
        expression = expressions.data(3)
        writes = (ir.RegisterWrite(0, ir.Const(0), expression),)
        if JitEngine.unsupported(with_action(base, writes)):
            refused += 1
        else:
            found.append(expression)
    assert refused < 80, "most of what p4c would write must be supported"
    writes = tuple(ir.RegisterWrite(0, ir.Const(i), each) for i, each in enumerate(found))
    edges = [bytes(68), b"\xff" * 68, b"\x80" + bytes(67), b"\x7f" + b"\xff" * 67]
    registers_of(with_action(base, writes), edges + [rng.bytes(68) for _ in range(60)])


@pytest.mark.parametrize(
    "constant",
    tiered(
        [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
        [(1 << 63) - 1, 1 << 63],
        "the same with other constants",
    ),
)
def test_fields_of_64_bits_are_given_constants(constant: int) -> None:
    """The ends of int64 too, of which Numba must not take the field to be nothing else."""
    base = load_program(PROGRAMS / "jit_expressions.json")
    header = next(i for i, each in enumerate(base.headers) if each.name == "x")
    fields = base.type_of(header).fields
    assert {each.signed for each in fields if each.width == 64} == {False, True}
    primitives: list[ir.Primitive] = []
    for i, each in enumerate(fields):
        if each.width == 64:
            field = ir.FieldRef(header, i)
            more = ir.Binary(ir.DataOperator.ADD, field, ir.Const(1))
            value = ir.Const(constant - (1 << 64) if each.signed and constant >> 63 else constant)
            for place, given in enumerate((value, more, value)):
                write = ir.RegisterWrite(0, ir.Const(3 * i + place), field)
                primitives += [ir.Assign(field, given), write]
    registers_of(with_action(base, tuple(primitives)), [bytes(range(68))])


def test_jumps() -> None:
    """if (a3) { 1; if (f1) { 2; goto end } 3 } else { 4 } 5; end: 6 - and a jump to the next."""
    base = load_program(PROGRAMS / "jit_expressions.json")
    header = next(i for i, each in enumerate(base.headers) if each.name == "x")
    kind = base.type_of(header)
    a3, f1 = (ir.FieldRef(header, kind.index(name)) for name in ("a3", "f1"))

    def mark(place: int) -> ir.Primitive:
        value = ir.Binary(ir.DataOperator.ADD, ir.FieldRef(header, kind.index("op")), ir.Const(1))
        return ir.RegisterWrite(0, ir.Const(place), value)

    primitives = (
        ir.JumpIfZero(a3, 7),
        mark(1),
        ir.JumpIfZero(f1, 5),
        mark(2),
        ir.Jump(10),
        mark(3),
        ir.Jump(8),
        mark(4),
        ir.JumpIfZero(a3, 9),
        mark(5),
        mark(6),
        ir.Jump(12),
    )
    rng = np.random.default_rng(0)
    registers_of(with_action(base, primitives), [rng.bytes(68) for _ in range(60)])


def test_a_batch_does_not_look_at_the_program(tables: ir.Program) -> None:
    """Walking a program of hundreds of statements takes as long as thousands of packets."""
    _, engine = made(tables)
    batch = PacketBatch.from_packets([(1, bytes(40))])
    first = engine.process(batch).to_packets()
    del engine._program
    assert engine.process(batch).to_packets() == first


def test_source_is_a_file_that_tracebacks_show(tables: ir.Program) -> None:
    _, engine = made(tables)
    source = engine.source_path.read_text()
    assert "# table I.exact_table" in source
    assert source.startswith(compiler.source_of(engine._program))


def test_tracebacks_show_the_source(tables: ir.Program, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("import numpy as np\n\nGROWTH = undefined\n")
    with pytest.raises(NameError) as raised:
        compiler.compile_source(path.read_text(), path)
    assert str(raised.traceback[-1].path) == str(path)
