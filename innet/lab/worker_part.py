"""The student's workers on a testbed, with the lab between them: it runs the switch, loses,
duplicates and delays packets, and looks at each that a worker sends.
"""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from innet import programs
from innet.core.errors import StalledError
from innet.lab.findings import LabFinding, WrongField, differences
from innet.lab.packets import (
    SLOTS,
    VALUES,
    Fields,
    LabChunk,
    contribution,
    fields_of,
    swapped,
)
from innet.lab.switch_part import SwitchUnderTest, told
from innet.switch import ir
from innet.testbed import Testbed

SumVector = Callable[[Any, int, list[int], int], Awaitable[Any]]
"""The student's ``sum_vector(host, number, vector, level)``."""

WORKERS = 3
CHUNKS = 4 * SLOTS  # of a vector: each slot is used four times
_LOST, _TWICE, _LATE = 0.1, 0.1, 0.15  # probabilities on each link, at level 3
_LATEST = 250e-6  # seconds by which packets are late
_LONGEST_STEP, _LONGEST_RUN = 5.0, 30.0  # real seconds
_MOST_SENT = 30  # times that a chunk is sent
_FREE = frozenset(
    {"ethernet.source", "ipv4.tos", "ipv4.identification", "ipv4.fragment", "ipv4.ttl",
     "ipv4.source", "ipv4.checksum", "udp.source", "udp.checksum"}
)  # fmt: skip
_EXERCISES = {
    1: "three workers sum vectors over Ethernet",
    2: "three workers sum vectors over UDP",
    3: "three workers sum vectors over links that lose, duplicate and reorder packets",
}


class _FoundError(Exception):
    """What is wrong; ends the run."""

    def __init__(self, finding: LabFinding) -> None:
        super().__init__(finding.mistake)
        self.finding = finding


class WorkerRun:
    """A run of the student's workers.

    Args:
        sum_vector: the student's.
        program: the switch's; None: the model in its place.
        level: 1 to 3.
        seed: of vectors and faults.

    Attributes:
        packets: that workers have sent.
    """

    def __init__(
        self, sum_vector: SumVector, program: ir.Program | None, level: int, seed: int
    ) -> None:
        self.packets = 0
        self._sum_vector, self._level = sum_vector, level
        self._switch = SwitchUnderTest(program, WORKERS, level)
        self._chance = random.Random(f"{seed} {level}")  # noqa: S311 - repeatable
        self._vectors = [
            [self._chance.randint(-1000, 1000) for _ in range(CHUNKS * VALUES)]
            for _ in range(WORKERS)
        ]
        # Of each worker: how often it has sent each chunk, when the lab first sent it the result,
        # and what became of its packets.
        self._sent: list[dict[int, int]] = [{} for _ in range(WORKERS)]
        self._results: list[dict[int, float]] = [{} for _ in range(WORKERS)]
        self._fates: list[dict[int, list[str]]] = [{} for _ in range(WORKERS)]
        self._stuck: int | None = None
        self._round_trip = 0.0
        self._node: Any = None

    def run(self) -> LabFinding | None:
        """What is wrong with the first packet that is, or with the workers' sums."""
        bed = Testbed("10g")
        folder = programs.p4_directory() / "lab"
        wires = bed.switch("wires", folder / "wires.json")
        tasks = []
        for number in range(WORKERS):
            host = bed.host(f"worker{number}")
            bed.link(host, wires, port=number + 1)
            tasks.append(host.run(self._worker(host, number)))
        self._node = bed.host("lab")
        self._round_trip = 4 * bed.network.delay  # at least: two links each way
        bed.link(self._node, wires, port=0)
        self._node.serve(self._pass_on)
        try:
            bed.run(wall_limit=_LONGEST_RUN, step_limit=_LONGEST_STEP)
        except _FoundError as found:
            return found.finding
        except StalledError as error:
            return self._stalled(str(error))
        for number, task in enumerate(tasks):
            if (finding := self._compare(number, task.result())) is not None:
                return finding
        return None

    # ------------------------------------------------------------------ what happens

    def _worker(self, host: Any, number: int) -> Callable[[], Any]:
        async def worker() -> Any:
            await host.sleep(self._chance.uniform(0, 5e-6))
            try:
                vector = list(self._vectors[number])
                return await self._sum_vector(host, number, vector, self._level)
            except StalledError:  # it took too long in real time
                self._stuck = number
                raise
            except Exception as error:
                raise _FoundError(self._raised(number, error)) from error

        return worker

    async def _pass_on(self) -> None:
        while True:
            tagged = await self._node.receive()
            worker, frame = int.from_bytes(tagged[:2], "big") - 1, tagged[2:]
            self.packets += 1
            chunk = self._look_at(worker, frame)
            for delay in self._delays(worker, chunk.number, "its packet"):
                self._later(delay, partial(self._at_switch, worker, frame, chunk))

    def _at_switch(self, worker: int, frame: bytes, chunk: LabChunk) -> None:
        """A packet comes to the switch; what leaves goes to the workers."""
        came, finding = self._switch.take(_EXERCISES[self._level], worker, frame, chunk)
        if finding is not None:
            raise _FoundError(finding)
        for port, frames in came.items():
            for each in frames:
                for delay in self._delays(port - 1, chunk.number, "the result"):
                    self._later(delay, partial(self._to_worker, port, each, chunk.number))

    def _to_worker(self, port: int, frame: bytes, number: int) -> None:
        self._results[port - 1].setdefault(number, self._node.now)
        self._node.send(port.to_bytes(2, "big") + frame)

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        if delay:
            self._node.at(self._node.now + delay, call)
        else:
            call()

    def _delays(self, worker: int, number: int, what: str) -> list[float]:
        """By how much each copy of a packet is late; none if it is lost."""
        if self._level < 3:
            return [0.0]
        fates = self._fates[worker].setdefault(number, [])
        if self._chance.random() < _LOST:
            fates.append(f"{what} was lost at {self._node.now * 1e6:.1f} us")
            return []
        fates.append("")
        copies = 1 + (self._chance.random() < _TWICE)
        late = [self._chance.random() < _LATE for _ in range(copies)]
        return [is_late * self._chance.uniform(0, _LATEST) for is_late in late]

    # ------------------------------------------------------------------ what is wrong

    def _look_at(self, worker: int, frame: bytes) -> LabChunk:
        """The chunk that a worker sends.

        Raises:
            _FoundError: it is not as it should be.
        """
        came = fields_of(frame)
        number = self._number_in(worker, came)
        chunk = self._chunk(worker, number)
        wrong = differences(fields_of(contribution(chunk, self._level)), came, _FREE)
        times = self._sent[worker].get(number, 0)
        if wrong:
            mistake, hint = _worker_hint(wrong, came, chunk, times)
            self._fail(worker, mistake, hint, sent=came, wrong=wrong, chunk=chunk)
        if times == _MOST_SENT:
            hint = (
                f"It sends this chunk again and again ({times} times). Send it again after "
                "TIMEOUT, and no more when its result has come."
            )
            self._fail(worker, "endless", hint, sent=came, chunk=chunk)
        before = number - SLOTS
        came_at = self._results[worker].get(before, math.inf) + self._round_trip
        if before >= 0 and self._node.now < came_at:
            busy = (
                f"The slot {chunk.slot} is in use: the result of its last chunk (offset "
                f"{before * VALUES}) has not come to worker {worker} yet."
            )
            if before - SLOTS in self._results[worker]:
                mistake, remedy = "result-of-another", (
                    "A result that comes late or twice is of an earlier chunk: take a result only "
                    "if its offset is that of the chunk which waits in the slot."
                )  # fmt: skip
            else:
                mistake, remedy = "slot-in-use", (
                    "Send the next chunk of a slot when the result of the one before it comes."
                )  # fmt: skip
            self._fail(worker, mistake, f"{busy} {remedy}", sent=came, chunk=chunk)
        self._sent[worker][number] = times + 1
        return chunk

    def _number_in(self, worker: int, came: Fields) -> int:
        """Which chunk a packet is to have, also if its fields are wrong."""
        offset = came.get("chunk.offset", -1)
        for each in (offset, swapped("chunk.offset", offset)):
            if each % VALUES == 0 and 0 <= each < CHUNKS * VALUES:
                return each // VALUES
        return min(len(self._sent[worker]), CHUNKS - 1)

    def _chunk(self, worker: int, number: int) -> LabChunk:
        values = self._vectors[worker][number * VALUES : (number + 1) * VALUES]
        return LabChunk(worker, number, tuple(values))

    def _fail(self, worker: int, mistake: str, hint: str, **more: Any) -> NoReturn:
        """Raise a finding, from the arguments of ``_finding``."""
        raise _FoundError(self._finding(worker, mistake, hint, **more))

    def _finding(
        self,
        worker: int,
        mistake: str,
        hint: str,
        *,
        sent: Fields | None = None,
        wrong: Sequence[WrongField] = (),
        chunk: LabChunk | None = None,
        packet: str = "",
    ) -> LabFinding:
        now = 0.0 if self._node is None else self._node.now
        where = f"sent by worker {worker} at {now * 1e6:.1f} us"
        return LabFinding(
            self._level,
            "workers",
            _EXERCISES[self._level],
            mistake,
            hint,
            packet or where,
            sent or {},
            should="" if chunk is None else told(chunk),
            wrong=tuple(wrong),
            before=() if chunk is None else self._switch.seen.told_of(chunk.slot),
        )

    def _raised(self, worker: int, error: Exception) -> LabFinding:
        """The student's code raised an error."""
        lines = [
            f"{Path(each.filename).name}:{each.lineno}, in {each.name}"
            for each in traceback.extract_tb(error.__traceback__)
            if not each.filename.startswith(str(Path(__file__).parent))
        ]
        return self._finding(
            worker,
            "error" if not isinstance(error, NotImplementedError) else "todo",
            f"{type(error).__name__}: {error}" + "".join(f"\n  {line}" for line in lines),
            packet=f"worker {worker} raised an error",
        )

    def _stalled(self, said: str) -> LabFinding:
        """A worker does not return: what it waits for."""
        if self._stuck is not None:
            return self._finding(
                self._stuck,
                "endless-loop",
                f"worker.py goes round without an await by which time passes: {said} A time-out of "
                "0, or of less than a picosecond, lets none pass.",
                packet="none: a worker does not stop",
            )
        for worker, sent in enumerate(self._sent):
            # Step 1: a chunk without a result, although the others have sent theirs.
            for number in sorted(set(sent) - set(self._results[worker])):
                others = [each for each in range(WORKERS) if number not in self._sent[each]]
                fates = [each for each in self._fates[worker].get(number, []) if each]
                if not others or fates:
                    what = fates[-1] if fates else "no result came"
                    return self._finding(
                        worker,
                        "never-again",
                        f"Of the chunk with offset {number * VALUES} {what}, and worker {worker} "
                        "has not sent it again. Give receive a timeout, and send a chunk again, "
                        "the same packet, if its result has not come after TIMEOUT.",
                        chunk=self._chunk(worker, number),
                        packet=f"one that worker {worker} does not send",
                    )
        for worker, sent in enumerate(self._sent):
            # Step 2: a chunk that was never sent, although its slot is free.
            for number in range(CHUNKS):
                is_free = number < SLOTS or number - SLOTS in self._results[worker]
                if number not in sent and is_free:
                    return self._never_sent(worker, number)
        return self._finding(
            0,
            "no-return",
            f"All results were sent, but a worker does not return its sum: {said}",
            packet="none is wrong",
        )

    def _never_sent(self, worker: int, number: int) -> LabFinding:
        return self._finding(
            worker,
            "never-sent",
            f"Worker {worker} never sends the chunk with offset {number * VALUES}, although its "
            f"slot {number % SLOTS} is free: begin with {SLOTS} chunks, and send the chunk {SLOTS} "
            "later when the result of one comes.",
            chunk=self._chunk(worker, number),
            packet=f"one that worker {worker} does not send",
        )

    def _compare(self, worker: int, came: Any) -> LabFinding | None:
        """A worker's sum beside what it should be."""
        total = [sum(column) for column in zip(*self._vectors, strict=True)]
        try:
            found = [int(each) for each in came]
        except (TypeError, ValueError):
            found = []
        if found == total:
            return None
        if len(found) != len(total):
            return self._finding(
                worker,
                "wrong-return",
                f"sum_vector returned {came!r:.60}; it should be a list of {len(total)} integers.",
                packet="none is wrong",
            )
        at = next(n for n, pair in enumerate(zip(found, total, strict=True)) if pair[0] != pair[1])
        number = at // VALUES
        if number not in self._sent[worker]:
            return self._never_sent(worker, number)
        is_there = number in self._results[worker]
        what = "The result packet was right" if is_there else "Its result has not come yet"
        return self._finding(
            worker,
            "result-misread",
            f"Element {at} of the sum should be {total[at]} and is {found[at]}. {what}: "
            "look at how worker.py unpacks it, where it writes its values (offset is the number of "
            "the chunk's first element), and that it returns when it has all results.",
            packet=f"the result for worker {worker}: slot {number % SLOTS}, offset "
            f"{number * VALUES}",
        )


def _worker_hint(
    wrong: Sequence[WrongField], came: Fields, chunk: LabChunk, times: int
) -> tuple[str, str]:
    """A name for the mistake, and a hint."""
    names = {each.name: each for each in wrong}
    in_chunk = [each for each in wrong if each.name.startswith(("chunk.", "values."))]
    if any(each.came is None for each in wrong) or "bytes behind" in names:
        return "wrong-length", (
            "The packet has not the fields of the lab, or bytes behind them: a payload is 8 bytes "
            "of header and 4 values of 4 bytes."
        )
    if in_chunk and all(each.came == swapped(each.name, each.should or 0) for each in in_chunk):
        return "byte-order", (
            "The bytes are in the wrong order: networks send the highest byte first (big endian, "
            'struct\'s ">").'
        )
    if list(names) == ["chunk.version"]:
        if times:
            return "version-changed", (
                f"Worker {chunk.worker} sends the chunk with offset {chunk.offset} again, with "
                f"version {came['chunk.version']} instead of {chunk.version}: to the switch it is "
                "another chunk. What is sent again is the same packet."
            )
        return "wrong-version", (
            "The version changes each time that a slot is used: it is (number of the chunk // "
            "SLOTS) % 2."
        )
    for name, mistake, hint in (
        ("chunk.worker", "wrong-worker", "The field worker is the number of the worker."),
        ("chunk.slot", "wrong-slot", "The slot is the number of the chunk % SLOTS."),
        ("chunk.offset", "wrong-offset", "The offset is that of the chunk's first element."),
        *(
            (f"values.v{n}", "wrong-values", f"Send elements from {chunk.offset} on.")
            for n in range(VALUES)
        ),
    ):
        if name in names:
            return mistake, hint
    return "wrong-address", (
        "The packet does not go to the switch: SWITCH_MAC, and from level 2 on SWITCH_IP and "
        "CHUNK_PORT."
    )


__all__ = ["SumVector", "WorkerRun"]
