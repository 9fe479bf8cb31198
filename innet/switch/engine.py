"""What the engines share: the state of a switch, and the interface that an engine has.

``Switch`` owns one ``SwitchState``; the control plane changes it, engines run packets over it. Two
engines given equal states and equal packets leave equal states and equal packets behind.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, fields
from operator import index
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import EndlessLoopError, InputError
from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.state.ageing import AgeingMonitor
from innet.switch.state.hashes import HashState
from innet.switch.state.meters import MeterState
from innet.switch.state.profiles import ProfileState, profile_states
from innet.switch.state.replication import Replication
from innet.switch.state.tables import Generation, TableState, zeros
from innet.switch.traffic_manager import MOST_EXTRA_BYTES, TrafficManager

if TYPE_CHECKING:
    from innet.switch.inline import InlineQueueSwitch, InlineSwitch


@dataclass(slots=True)
class Statistics:
    """Counts since the switch was loaded or ``Switch.reset_statistics`` was called.

    ``packets_in`` counts what came from outside; a copy that is dropped counts where it is dropped.
    """

    packets_in: int = 0
    bytes_in: int = 0
    packets_out: int = 0
    bytes_out: int = 0
    dropped_ingress: int = 0
    dropped_egress: int = 0
    replicated: int = 0
    """Copies made by multicast."""
    unknown_groups: int = 0
    """Packets sent to a multicast group that does not exist or is empty."""
    cloned: int = 0
    resubmitted: int = 0
    recirculated: int = 0
    parser_errors: int = 0
    checksum_errors: int = 0
    failed_assertions: int = 0
    dropped_queue: int = 0
    """Copies dropped because their egress queue was full."""
    looped: int = 0
    """Clones, resubmissions and recirculations not done because of ``MAX_LOOPS``."""

    def as_dict(self) -> dict[str, int]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


MAX_LOOPS = 4096
"""How many clones, resubmissions and recirculations one received packet may cause in total, so that
nothing hangs. simple_switch would run on forever."""

MAX_PARSER_STATES = 65536
"""How many states the parser may enter for one packet; one more is error ParserTimeout.
simple_switch would run on forever."""


MAX_BACKWARD_JUMPS = 1 << 20
"""How often one run of an action may jump back; one time more is an EndlessLoopError.
simple_switch would run on forever."""


def backward_jumps(program: ir.Program) -> list[tuple[str, ir.Jump | ir.JumpIfZero]]:
    """Each jump that closes a loop, with the name of its action, or that of the deparser."""
    bodies = [(action.name, action.primitives) for action in program.actions]
    bodies.append((DEPARSER, program.deparser.operations))
    return [
        (name, primitive)
        for name, primitives in bodies
        for position, primitive in enumerate(primitives)
        if isinstance(primitive, ir.Jump | ir.JumpIfZero) and primitive.target <= position
    ]


DEPARSER = "deparser"
"""What the primitives of the deparser are called where those of actions have a name."""


def endless_loop(
    program: ir.Program, action: str, jump: ir.Jump | ir.JumpIfZero
) -> EndlessLoopError:
    """The error for a loop of ``action`` that ``jump`` closes."""
    where = f" at {jump.source}" if jump.source else ""
    return EndlessLoopError(
        f"{program.name}: the loop{where} in {action} went round more than "
        f"{MAX_BACKWARD_JUMPS:,} times for one packet, so it may never end (simple_switch would "
        "hang). Give it a bound that every packet reaches"
    )


class InstanceType(enum.IntEnum):
    """What standard_metadata.instance_type says of where a packet comes from."""

    NORMAL = 0
    INGRESS_CLONE = 1
    EGRESS_CLONE = 2
    RECIRCULATED = 4
    REPLICATED = 5
    RESUBMITTED = 6


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    """Consecutive register arrays of one size and width, stored side by side.

    Attributes:
        registers: their indices in ``Program.registers``, consecutive.
        matrix: shape (size, len(registers)), C-contiguous; uint8, uint16, uint32 or uint64, the
            first that holds the width. Cell i of the k-th register is ``matrix[i, k]``, so that one
            row holds what a packet touches when it uses the same index in all of them. Above 64
            bits the shape is (size, len(registers), words): a cell is as many uint64 words as hold
            its width, the most significant one first.
    """

    registers: tuple[int, ...]
    matrix: NDArray[Any]


def allocate_registers(program: ir.Program) -> tuple[RegisterGroup, ...]:
    """Zeroed storage for all registers of ``program``, in the order of the program."""
    groups: list[RegisterGroup] = []
    start = 0
    arrays = program.registers
    for end in range(1, len(arrays) + 1):
        if end < len(arrays) and _shape(arrays[end]) == _shape(arrays[start]):
            continue
        words = (arrays[start].width + 63) // 64
        shape = (arrays[start].size, end - start, *([words] if words > 1 else []))
        names = f"registers {arrays[start].name}..{arrays[end - 1].name}"
        matrix = zeros(shape, dtype_of(arrays[start].width), names)
        groups.append(RegisterGroup(tuple(range(start, end)), matrix))
        start = end
    return tuple(groups)


def dtype_of(width: int) -> np.dtype[Any]:
    """How register cells of ``width`` bits are stored: in as few bytes as hold them."""
    item = next((bits for bits in (8, 16, 32) if width <= bits), 64)
    return np.dtype(f"uint{item}")


def cell_value(cells: NDArray[Any], index: int) -> int:
    """What cell ``index`` of a register's view in ``SwitchState.registers`` holds."""
    if cells.ndim == 1:
        return int(cells[index])
    return int.from_bytes(cells[index].astype(">u8").tobytes(), "big")


def set_cell(cells: NDArray[Any], index: int, value: int) -> None:
    """Give a cell an unsigned ``value`` that fits it."""
    if cells.ndim == 1:
        cells[index] = value
    else:
        cells[index] = np.frombuffer(value.to_bytes(8 * cells.shape[1], "big"), ">u8")


def _shape(array: ir.RegisterArray) -> tuple[int, int]:
    return (array.size, array.width)


@dataclass(slots=True)
class SwitchState:
    """Everything that outlives a packet.

    Args:
        program: what is loaded.
        random: seeds ``random()``.
        priority_queues: egress queues per port.

    Attributes:
        random_state: shape (1,), of ``state.hashes.uniform``.
        register_groups, registers: the storage, and one view per ``Program.registers`` into it:
            (size,), above 64 bits (size, words). Writing to a view writes to the storage.
            ``cell_value`` and ``set_cell`` read and write cells of any width.
        counters: per ``Program.counters``: uint64 (size, 2), columns ``tables.PACKETS`` and
            ``tables.BYTES``. For a direct counter it is its table's matrix.
        meters: per ``Program.meters``; those of a table are indexed by ``RuntimeEntry.index``.
        tables: per ``Program.tables``.
        profiles: per ``Program.action_profiles``.
        replication: multicast groups and mirror sessions.
        value_sets: per ``Program.value_sets``: the values, without padding.
        hashes: per ``Program.hashes``.
        digests: (learn list index, values) in the order in which ``digest`` was called.
        ageing: sweeps tables for idle entries as the clock goes on.
        clock: microseconds; what timestamps read. Time is passed in: calls with times set it to
            theirs, nothing else here advances it.
        traffic_manager: the egress queues; calls without times pass them by.
        generation: ``.value`` grows whenever the control plane changes tables, replication, value
            sets or hash parameters. Registers, counters and the clock do not move it.
    """

    program: ir.Program
    random: InitVar[np.random.Generator]
    priority_queues: InitVar[int] = 1
    random_state: NDArray[np.uint64] = field(init=False)
    register_groups: tuple[RegisterGroup, ...] = field(init=False)
    registers: tuple[NDArray[Any], ...] = field(init=False)
    counters: tuple[NDArray[np.uint64], ...] = field(init=False)
    meters: tuple[MeterState, ...] = field(init=False)
    tables: tuple[TableState, ...] = field(init=False)
    profiles: tuple[ProfileState, ...] = field(init=False)
    replication: Replication = field(init=False)
    value_sets: tuple[set[int], ...] = field(init=False)
    hashes: tuple[HashState, ...] = field(init=False)
    digests: list[tuple[int, tuple[int, ...]]] = field(init=False, default_factory=list)
    ageing: AgeingMonitor = field(init=False)
    clock: int = field(init=False, default=0)
    traffic_manager: TrafficManager = field(init=False)
    statistics: Statistics = field(init=False, default_factory=Statistics)
    generation: Generation = field(init=False, default_factory=Generation)

    def __post_init__(self, random: np.random.Generator, priority_queues: int) -> None:
        program = self.program
        self.traffic_manager = TrafficManager(priority_queues)
        self.random_state = random.integers(1 << 64, size=1, dtype=np.uint64)
        self.register_groups = allocate_registers(program)
        self.registers = tuple(
            group.matrix[:, column]
            for group in self.register_groups
            for column in range(len(group.registers))
        )
        self.tables = tuple(
            TableState(table, self.generation, program.actions) for table in program.tables
        )
        self.ageing = AgeingMonitor(self.tables)
        self.profiles = profile_states(program, self.tables)
        self.counters = tuple(self._counter(counter) for counter in program.counters)
        self.hashes = tuple(
            HashState(each.algorithm, f"calculation {each.name}") for each in program.hashes
        )
        self.meters = tuple(MeterState(meter) for meter in program.meters)
        self.replication = Replication(self.generation)
        self.value_sets = tuple(set() for _ in program.value_sets)

    def time(self) -> int:
        """``clock``, made an integer of Python's own, after the ageing sweeps that are due by it;
        InputError where 64 bits hold no such.

        Called before packets or the control plane use the time.
        """
        try:
            self.clock = clock = index(self.clock)
        except TypeError:
            clock = None
        if clock is None or not -(1 << 63) <= clock < 1 << 63:
            raise InputError(
                f"the switch's clock is a whole number of microseconds in 64 bits, not "
                f"{self.clock!r:.40}; set Switch.state.clock to one"
            )
        if clock >= self.ageing.due:
            self.ageing.advance(clock)
        return clock

    def profile_of(self, table: ir.Table) -> ProfileState | None:
        """The profile that an indirect table takes its actions from."""
        return None if table.action_profile is None else self.profiles[table.action_profile]

    def _counter(self, counter: ir.CounterArray) -> NDArray[np.uint64]:
        if counter.table is not None:
            matrix = self.tables[counter.table].counters
            if matrix is not None:
                return matrix
        return zeros((counter.size, 2), np.dtype(np.uint64), f"counter {counter.name}")


class Engine(Protocol):
    """Runs packets through a program.

    An engine is made once per switch. It reads tables and replication from the state and must
    notice, by ``state.generation.value``, when they changed between two calls.
    """

    def __init__(self, program: ir.Program, state: SwitchState) -> None: ...

    @staticmethod
    def unsupported(program: ir.Program) -> list[str]:
        """What ``program`` uses that the engine does not have, each with where it is used."""
        ...

    def process(self, batch: PacketBatch) -> PacketBatch:
        """Run packets in arrival order.

        The output follows the input: all copies of packet i come before those of packet i+1, in the
        order of replication. simple_switch promises that order only per port. ``origin`` of the
        output says which packet of ``batch`` each stems from.

        Raises:
            InputError: a length that is negative or longer than a row.
            EndlessLoopError: an action went round without end. What the batch had sent is lost,
                and packets behind this one do not run.
        """
        ...

    def process_timed(
        self, batch: PacketBatch, times: NDArray[np.int64], until: int
    ) -> PacketBatch:
        """Run packets that arrive at ``times``, and what waits, through the egress queues.

        Before a packet is received, everything leaves that is due. ``state.traffic_manager.now``
        and ``state.clock`` end at the last time that something happened or, if that is later, at
        ``until``.

        Args:
            batch: in arrival order.
            times: int64 of shape (n,), nanoseconds, not descending, not before
                ``state.traffic_manager.now``. The caller has checked that.
            until: what leaves its queue later than that waits for the next call; ``FOREVER`` (of
                ``traffic_manager``): nothing waits.

        Returns:
            what left, in the order in which it left, with ``time``; ``origin`` is -1 for what
            earlier calls received.
        """
        ...

    @property
    def waiting(self) -> int:
        """Copies that wait for egress, and packets on their way through the recirculation port."""
        ...

    @property
    def next_departure(self) -> int | None:
        """When the next of them leaves or comes again, in nanoseconds; None: nothing waits.

        With bit rates and priorities, packets of higher priorities may postpone it.
        """
        ...

    def inline(self, packets: PacketBatch, *, beside: bool = False) -> InlineSwitch | None:
        """The program for other compiled code to run on packets in the memory of ``packets``.

        That code fills in as many rows as it likes, and answers for lengths and ports, which
        no code reads again. None where only ``process`` runs the program.

        ``beside``: the program for one more thread, which runs it while others do. ``sharding``
        says which packets it may run. What it counts is added by its ``end``. All ``begin`` and
        ``end`` are called while no thread runs it.
        """
        ...

    def inline_queues(
        self, packets: PacketBatch, *, timed: bool = True
    ) -> InlineQueueSwitch | None:
        """The same with egress queues and times: ``process_timed`` for other compiled code.

        None where only ``process_timed`` runs the program: not compiled, with entries that age, or
        with loops that may turn out to have no end; with times also where records are taken.

        Args:
            packets: as for ``inline``.
            timed: whether packets have times and wait; otherwise it is ``process``.
        """
        ...


def check_lengths(batch: PacketBatch) -> None:
    """Each length must lie in its row, and extra bytes in their range: InputError if not."""
    stride = batch.data.shape[1]
    if len(batch) and not 0 <= batch.length.min() <= batch.length.max() <= stride:
        raise InputError(
            f"packet lengths must be in 0..{stride}, the width of a row; found "
            f"{batch.length.min()}..{batch.length.max()}"
        )
    extra = batch.extra
    if extra is not None and len(batch) and not 0 <= extra.min() <= extra.max() <= MOST_EXTRA_BYTES:
        raise InputError(
            f"the extra bytes of a packet are 0 to {MOST_EXTRA_BYTES:,}; found "
            f"{extra.min()}..{extra.max()}"
        )


def refusal(engine: str, reasons: Sequence[str], other: str | None = None) -> str:
    """The message of the UnsupportedError for ``reasons``; ``other``: an engine without any."""
    listed = "".join(f"\n  {reason}" for reason in reasons)
    remedy = f"\nLoad it with engine='{other}'." if other else ""
    return f"the {engine} engine does not support what this program uses:{listed}{remedy}"
