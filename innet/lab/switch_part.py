"""The student's switch beside the model of it: packet by packet, and what mistake explains it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from innet.core.errors import ControlError, ProgramError
from innet.lab.findings import LabFinding, WrongField, differences
from innet.lab.packets import (
    SLOTS,
    VALUES,
    LabChunk,
    fields_of,
    ip_of,
    ipv4_checksum,
    mac_of,
    result,
    swapped,
    udp_checksum,
)
from innet.lab.reference import Due, ReferenceSwitch
from innet.switch import Switch, ir

Frames = Mapping[int, Sequence[bytes]]
"""Frames by port."""

_FREE = frozenset(
    {"chunk.worker", "ipv4.tos", "ipv4.identification", "ipv4.fragment", "ipv4.ttl"}
)  # fields of results that may be anything
_MADE_UP = re.compile(r"table tbl_|action [a-z_]+\d+(_\d+)?\(\)|scalars\.tmp")
"""Lines of a trace about what p4c made up, and is not in the source."""
_ETHERNET = frozenset({"ethernet.destination", "ethernet.source"})


@dataclass
class SwitchUnderTest:
    """The student's program on the built-in switch, or the model in its place; with its history.

    Args:
        program: the student's; None: the model alone.
        workers: how many take part, at ports 1, 2, ...
        level: 1 to 3.

    Raises:
        ProgramError: the program has not the tables that the lab fills.
    """

    program: ir.Program | None
    workers: int
    level: int
    before: list[str] = field(default_factory=list)
    chunks: list[LabChunk | None] = field(default_factory=list)
    traces: list[list[str]] = field(default_factory=list)
    results: dict[int, LabChunk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._model = ReferenceSwitch(self.workers)
        if self.program is None:
            return
        # The interpreter: nothing is compiled, and it tells what happens to each packet.
        self._switch = Switch(self.program, "interpret")
        for line in commands(self.workers):
            try:
                self._switch.command(line)
            except ControlError as error:
                raise ProgramError(
                    f"the lab's control plane cannot run {line!r}: {error} Keep the tables job and "
                    "addresses, their keys and actions, and apply both."
                ) from None

    def take(
        self, exercise: str, worker: int, frame: bytes, chunk: LabChunk | None
    ) -> tuple[Frames, LabFinding | None]:
        """A packet comes.

        Args:
            exercise: what it is about, for the finding.
            worker: at whose port.
            frame: its bytes.
            chunk: what it has; None: it is not of the lab.

        Returns:
            what leaves, by port, and what is wrong with it.
        """
        due = self._model.take(chunk)
        came: dict[int, list[bytes]] = {}
        trace: list[str] = []
        if self.program is None:
            came = _frames_due(due, self.level)
        else:
            events = self._switch.trace(worker + 1, frame)
            trace = [line for line in map(str, events) if not _MADE_UP.match(line)]
            for event in events:
                if event.kind == "sent":
                    came.setdefault(event["port"], []).append(event["data"])
        if due.why == "result" and due.chunk is not None:
            self.results[due.chunk.number] = due.chunk
        packet = f"of worker {worker}, at port {worker + 1}: {told(chunk)}"
        finding = None
        judged = _judge(self, worker, chunk, due, came)
        if judged is not None:
            mistake, hint, wrong, culprit = judged
            finding = LabFinding(
                self.level,
                "switch",
                exercise,
                mistake,
                hint,
                packet,
                fields_of(frame),
                _ports(due) + (" or nothing" if due.optional else ""),
                _came(came),
                wrong,
                self.told_of(None if chunk is None else chunk.slot),
                trace if culprit is None else self.traces[culprit],
                "" if culprit is None else self.before[culprit],
            )
        self.chunks.append(chunk)
        self.traces.append(trace)
        self.before.append(f"{packet} → {_came(came)}")
        return came, finding

    def told_of(self, slot: int | None) -> tuple[str, ...]:
        """The packets of a slot, or all, in words."""
        return tuple(
            line
            for line, each in zip(self.before, self.chunks, strict=True)
            if slot is None or each is None or each.slot == slot
        )

    def packets_of(self, number: int) -> list[int]:
        """Which of the packets before had a chunk."""
        return [n for n, each in enumerate(self.chunks) if each and each.number == number]

    def workers_of(self, number: int) -> list[int]:
        """Whose they were, as often as they came."""
        return [each.worker for each in self.chunks if each and each.number == number]

    def repeated(self, number: int, worker: int | None = None) -> int | None:
        """The first packet before that repeated another one of a chunk, perhaps of one worker."""
        known: set[int] = set()
        for packet, each in zip(self.packets_of(number), self.workers_of(number), strict=True):
            if each in known and worker in (None, each):
                return packet
            known.add(each)
        return None

    def late(self, chunk: LabChunk) -> int | None:
        """The first packet before of an earlier chunk that came after this chunk had begun."""
        begun = self.packets_of(chunk.number)[:1]
        for number in range(begun[0], len(self.chunks)) if begun else ():
            each = self.chunks[number]
            if (
                each
                and each[1] < chunk.number
                and (each.slot, each.version) == (chunk.slot, chunk.version)
            ):
                return number
        return None


def commands(workers: int) -> list[str]:
    """What the lab's control plane does at the student's switch."""
    everyone = range(workers)
    return [
        f"table_set_default job set_workers {workers}",
        "mc_mgrp_create 1",
        f"mc_node_create 0 {' '.join(str(worker + 1) for worker in everyone)}",
        "mc_node_associate 1 0",
        *(
            f"table_add addresses set_addresses {worker + 1} => {mac_of(worker)} {ip_of(worker)}"
            for worker in everyone
        ),
    ]


def told(chunk: LabChunk | None) -> str:
    """A chunk in a line."""
    if chunk is None:
        return "no packet of the lab"
    values = " ".join(map(str, chunk.values))
    return f"slot {chunk.slot}, version {chunk.version}, offset {chunk.offset}, values {values}"


def _frames_due(due: Due, level: int) -> dict[int, list[bytes]]:
    if due.chunk is None:
        return {}
    return {worker + 1: [result(due.chunk, level, worker)] for worker in due.workers}


def _ports(due: Due) -> str:
    if due.chunk is None:
        return "nothing"
    values = " ".join(map(str, due.chunk.values))
    return f"{values} at {_listed('port', [worker + 1 for worker in due.workers])}"


def _came(came: Frames) -> str:
    found: dict[str, list[int]] = {}
    for port, frames in came.items():
        for frame in frames:
            fields = fields_of(frame)
            values = " ".join(str(fields.get(f"values.v{n}", "-")) for n in range(VALUES))
            found.setdefault(values, []).append(port)
    return (
        "; ".join(f"{values} at {_listed('port', at)}" for values, at in found.items()) or "nothing"
    )


def _listed(what: str, numbers: Sequence[int]) -> str:
    numbers = sorted(numbers)
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


# ------------------------------------------------------------------ which mistake it is

Hint = tuple[str, str, int | None]
"""The mistake's name, the hint, and which packet before was taken wrongly; None: this one."""


def _judge(
    seen: SwitchUnderTest, worker: int, chunk: LabChunk | None, due: Due, came: Frames
) -> tuple[str, str, Sequence[WrongField], int | None] | None:
    """The mistake's name, the hint, fields that differ, and which packet before was taken wrongly;
    None if all is right.
    """
    ports = sorted(port for port, frames in came.items() for _ in frames)
    should = sorted(each + 1 for each in due.workers)
    if due.optional and not ports:
        return None
    wrong: Sequence[WrongField] = ()
    hint: Hint | None = None
    if ports and due.chunk is None:
        hint = _unwanted(seen, chunk, due)
    elif not ports and should:
        hint = _missing(seen, worker, chunk, due)
    elif ports != should:
        hint = *_elsewhere(worker, due, ports, should), None
    for port in ports if hint is None else ():
        assert due.chunk is not None, "what should not come was found above"
        assert chunk is not None, "and what comes of packets that are not of the lab"
        wrong = _wrong_fields(due.chunk, seen.level, port - 1, came[port][0])
        if wrong:
            hint = _changed(seen, chunk, due, wrong, came[port][0])
            break
    return None if hint is None else (*hint[:2], wrong, hint[2])


def _late_hint(packet: LabChunk) -> tuple[str, str]:
    return "late-duplicate", (
        f"Worker {packet.worker}'s packet with offset {packet.offset} is a late duplicate: the "
        "slot has gone on to a later chunk, with a higher offset. Keep the offset of the chunk in "
        "each slot and version, and drop what has a lower one."
    )


def _unwanted(seen: SwitchUnderTest, chunk: LabChunk | None, due: Due) -> Hint:
    """Something came, and nothing should."""
    if chunk is None:
        return "foreign-packet", (
            "This packet is not of the lab: another type, or another UDP port. Drop it "
            "(hdr.values is not valid then)."
        ), None  # fmt: skip
    if due.why == "late":
        return *_late_hint(chunk), None
    same = [*seen.workers_of(chunk.number), chunk.worker]
    summed = set(same)
    if len(same) >= seen.workers > len(summed):
        twice = max(summed, key=same.count)
        return "counted-twice", (
            f"Worker {twice}'s packet came {same.count(twice)} times and counts as another worker: "
            f"{len(same)} packets came, but of {len(summed)} of {seen.workers} workers only. Keep "
            "a bitmap of the workers that were summed, for each slot and version."
        ), seen.repeated(chunk.number)  # fmt: skip
    return "early-result", (
        f"The result was sent before all workers came: {len(summed)} of {seen.workers} workers' "
        "packets were summed. Count first, then compare with meta.workers; until then drop."
    ), None  # fmt: skip


def _missing(seen: SwitchUnderTest, worker: int, chunk: LabChunk | None, due: Due) -> Hint:
    """Nothing came, and something should."""
    assert chunk is not None, "nothing should come of other packets"
    if due.why == "answer":
        return "no-answer", (
            f"Worker {worker} sends its chunk again, as the result was lost on the way to it. The "
            "sum is complete: answer with the copy that its slot and version keep, to the port "
            "from which the packet came."
        ), None  # fmt: skip
    before = [n for n in seen.results if n % SLOTS == chunk.slot and n != chunk.number]
    if (late := seen.late(chunk)) is not None:
        packet = seen.chunks[late]
        assert packet is not None, "it is of the lab"
        return *_late_hint(packet), late
    if (repeated := seen.repeated(chunk.number)) is not None:
        return "result-missed", (
            "The last worker's packet came, but no result left. Another packet of this chunk came "
            "twice before: it must neither count nor change anything."
        ), repeated  # fmt: skip
    if before:
        return "count-not-reset", (
            f"The slot {chunk.slot} was used before, by the chunk with offset {before[-1] * VALUES}"
            ". Reset its count (and sum, and whose chunks it has) for the next chunk: the result "
            f"leaves when {seen.workers} workers' packets of this chunk are there."
        ), None  # fmt: skip
    return "no-result", (
        f"All {seen.workers} workers' packets came, and the result should leave to all of them. "
        "Look at the end of the way: is the chunk parsed, is the count right, is "
        "standard_metadata.mcast_grp set, and the packet not marked to drop?"
    ), None  # fmt: skip


def _elsewhere(
    worker: int, due: Due, ports: Sequence[int], should: Sequence[int]
) -> tuple[str, str]:
    """It came at other ports."""
    if due.why == "answer":
        return "answer-to-all", (
            f"The answer is for worker {worker} alone, which has lost the result: send it to the "
            "port from which the packet came (standard_metadata.ingress_port), not to the group."
        )
    if set(ports) < set(should):
        return "unicast", (
            f"The result went to {_listed('port', ports)} only (unicast), and all workers wait for "
            "it. Send it by multicast: standard_metadata.mcast_grp = ALL_WORKERS."
        )
    return "wrong-ports", f"The result should leave by {_listed('port', should)}, once by each."


def _wrong_fields(chunk: LabChunk, level: int, worker: int, frame: bytes) -> list[WrongField]:
    """What differs in a result from what it should be."""
    should, came = fields_of(result(chunk, level, worker)), fields_of(frame)
    # Checksums are those of the header that came: a wrong address is one mistake, and not two.
    if "ipv4.checksum" in should and "ipv4.checksum" in came:
        should["ipv4.checksum"] = ipv4_checksum(frame)
    if came.get("udp.checksum"):
        should["udp.checksum"] = udp_checksum(frame)
    return differences(should, came, _FREE | _ETHERNET if level == 1 else _FREE)


def _changed(
    seen: SwitchUnderTest, chunk: LabChunk, due: Due, wrong: Sequence[WrongField], frame: bytes
) -> Hint:
    """Fields differ."""
    names = {each.name: each for each in wrong}
    if "ipv4.version_ihl" in names or any(each.came is None for each in wrong):
        return "headers-missing", (
            "The result has not the headers of the workers' packets: emit all of them in the "
            "deparser, in their order."
        ), None  # fmt: skip
    for name in ("chunk.slot", "chunk.version", "chunk.offset", "ethernet.type"):
        if name in names:
            header, _, short = name.partition(".")
            return f"{short}-lost", (
                f"The field {short} of the {header} header is lost: the result has that of the "
                "chunk which was summed. Workers know by slot and offset which chunk it is."
            ), None  # fmt: skip
    if any(name.startswith("values") for name in names):
        return _values(seen, chunk, due, fields_of(frame))
    for check, mistake, hint in _HEADER_HINTS:
        if any(check(name) for name in names):
            return mistake, hint, None
    return "wrong-field", f"{wrong[0].name} is not as it should be.", None


_HEADER_HINTS: Sequence[tuple[Callable[[str], bool], str, str]] = (
    (
        lambda name: name in ("udp.length", "ipv4.total_length"),
        "wrong-length",
        "A length is wrong. That of UDP counts its own header and what follows, 8 + 24 bytes; that "
        "of IPv4 all from its header on, 20 + 8 + 24. The result is as long as the packet.",
    ),
    (
        lambda name: name.endswith((".source", ".destination")),
        "wrong-address",
        "The result comes from the switch (SWITCH_MAC, SWITCH_IP, CHUNK_PORT) and goes to the "
        "worker at the port by which it leaves: set_addresses gets its addresses, in egress, where "
        "each copy of a multicast is a packet of its own.",
    ),
    (
        lambda name: name == "ipv4.checksum",
        "ipv4-checksum",
        "The checksum of IPv4's header is that of the packet which came: addresses have changed, "
        "so compute it again (update_checksum in the control UpdateChecksums), over all fields of "
        "the header but itself.",
    ),
    (
        lambda name: name == "udp.checksum",
        "udp-checksum",
        "The checksum of UDP covers addresses and payload, which have changed. Compute it again, "
        "or set it to 0, which means over IPv4 that there is none.",
    ),
    (
        lambda name: name == "bytes behind",
        "wrong-length",
        "The length of the packet has changed: something is emitted twice, or not at all.",
    ),
)


def _values(seen: SwitchUnderTest, chunk: LabChunk, due: Due, fields: Mapping[str, int]) -> Hint:
    """The sum is wrong: what it is instead."""
    assert due.chunk is not None, "something should come"
    came, total = tuple(fields[f"values.v{n}"] for n in range(VALUES)), due.chunk.values
    hint = _of_other_chunks(seen, chunk, due, came) or _of_workers(seen, chunk, total, came)
    if hint is not None:
        return hint
    if came == tuple(swapped("values", each) for each in total):
        return "byte-order", "The bytes of the values are in the wrong order.", None
    if (late := seen.late(chunk)) is not None and (packet := seen.chunks[late]) is not None:
        return *_late_hint(packet), late
    return "wrong-sum", "The values are not the sum of the workers' values.", None


def _of_other_chunks(
    seen: SwitchUnderTest, chunk: LabChunk, due: Due, came: Sequence[int]
) -> Hint | None:
    """The sum is that of another chunk, or has it in it."""
    assert due.chunk is not None, "something should come"
    for number in (chunk.number - SLOTS, chunk.number + SLOTS) if due.why == "answer" else ():
        others = {e.worker: e.values for e in seen.chunks if e and e.number == number}
        if came == (_sum(others.values()) or (0,) * VALUES):
            what = f"the chunk with offset {number * VALUES}" if others else "no chunk yet"
            return "wrong-version", (
                f"The answer to a retransmission has the sum of the other version, which is of "
                f"{what}. The packet says version {chunk.version}: answer from the copy of this "
                "version."
            ), None  # fmt: skip
    kept = [(0,) * VALUES]
    for number in sorted(seen.results, reverse=True):
        if number % SLOTS == chunk.slot and number < chunk.number:
            kept += [seen.results[number].values, _sum([kept[-1], seen.results[number].values])]
    if any(came == _sum([due.chunk.values, each]) for each in kept[1:]):
        return "sum-not-reset", (
            f"The slot {chunk.slot} was not reset for the next chunk: its sum still has that of "
            "the chunk before. The first packet of a chunk replaces what the slot has."
        ), None  # fmt: skip
    return None


def _of_workers(
    seen: SwitchUnderTest, chunk: LabChunk, total: Sequence[int], came: Sequence[int]
) -> Hint | None:
    """A worker is too often in the sum, or not at all."""
    mine = {e.worker: e.values for e in (*seen.chunks, chunk) if e and e.number == chunk.number}
    same = seen.workers_of(chunk.number)
    for worker, values in mine.items():
        for times in range(1, same.count(worker) + 1):
            if came == _sum([total, *[values] * times]):
                return "added-twice", (
                    f"Worker {worker}'s chunk was added {times + 1} times: its duplicate was summed"
                    ", too. If its bit is set in the slot's bitmap, leave the sum as it is."
                ), seen.repeated(chunk.number, worker)  # fmt: skip
    if came == chunk.values:
        return "no-sum", (
            f"The result has the values of the last packet (worker {chunk.worker}), not the sum: "
            "read the registers, add, and write the sum to the register and the packet."
        ), None  # fmt: skip
    for worker, values in mine.items():
        if _sum([came, values]) == tuple(total):
            return "worker-missing", f"The values of worker {worker} are not in the sum.", None
    return None


def _sum(vectors: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """As int32 has it."""
    sums: Iterable[Any] = map(sum, zip(*vectors, strict=True))
    return tuple((each + 2**31) % 2**32 - 2**31 for each in sums)


__all__ = ["Frames", "SwitchUnderTest", "commands", "told"]
