"""What is wrong with what leaves the student's switch, and which mistake explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from innet.lab.findings import WrongField, differences
from innet.lab.history import Frames, History, listed
from innet.lab.packets import (
    SLOTS,
    VALUES,
    LabChunk,
    fields_of,
    ipv4_checksum,
    result,
    sum_of,
    swapped,
    udp_checksum,
)
from innet.lab.reference import Due

_FREE = frozenset(
    {"chunk.worker", "ipv4.tos", "ipv4.identification", "ipv4.fragment", "ipv4.ttl"}
)  # fields of results that may be anything
_ETHERNET = frozenset({"ethernet.destination", "ethernet.source"})

Hint = tuple[str, str, int | None]
"""The mistake's name, the hint, and which packet before was taken wrongly; None: this one."""


def judge(
    seen: History, worker: int, chunk: LabChunk | None, due: Due, came: Frames
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


def _unwanted(seen: History, chunk: LabChunk | None, due: Due) -> Hint:
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


def _missing(seen: History, worker: int, chunk: LabChunk | None, due: Due) -> Hint:
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
            f"The result went to {listed('port', ports)} only (unicast), and all workers wait for "
            "it. Send it by multicast: standard_metadata.mcast_grp = ALL_WORKERS."
        )
    return "wrong-ports", f"The result should leave by {listed('port', should)}, once by each."


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
    seen: History, chunk: LabChunk, due: Due, wrong: Sequence[WrongField], frame: bytes
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


def _values(seen: History, chunk: LabChunk, due: Due, fields: Mapping[str, int]) -> Hint:
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


def _of_other_chunks(seen: History, chunk: LabChunk, due: Due, came: Sequence[int]) -> Hint | None:
    """The sum is that of another chunk, or has it in it."""
    assert due.chunk is not None, "something should come"
    for number in (chunk.number - SLOTS, chunk.number + SLOTS) if due.why == "answer" else ():
        others = {e.worker: e.values for e in seen.chunks if e and e.number == number}
        if came == (sum_of(others.values()) or (0,) * VALUES):
            what = f"the chunk with offset {number * VALUES}" if others else "no chunk yet"
            return "wrong-version", (
                f"The answer to a retransmission has the sum of the other version, which is of "
                f"{what}. The packet says version {chunk.version}: answer from the copy of this "
                "version."
            ), None  # fmt: skip
    kept = [(0,) * VALUES]
    for number in sorted(seen.results, reverse=True):
        if number % SLOTS == chunk.slot and number < chunk.number:
            kept += [seen.results[number].values, sum_of([kept[-1], seen.results[number].values])]
    if any(came == sum_of([due.chunk.values, each]) for each in kept[1:]):
        return "sum-not-reset", (
            f"The slot {chunk.slot} was not reset for the next chunk: its sum still has that of "
            "the chunk before. The first packet of a chunk replaces what the slot has."
        ), None  # fmt: skip
    return None


def _of_workers(
    seen: History, chunk: LabChunk, total: Sequence[int], came: Sequence[int]
) -> Hint | None:
    """A worker is too often in the sum, or not at all."""
    mine = {e.worker: e.values for e in (*seen.chunks, chunk) if e and e.number == chunk.number}
    same = seen.workers_of(chunk.number)
    for worker, values in mine.items():
        for times in range(1, same.count(worker) + 1):
            if came == sum_of([total, *[values] * times]):
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
        if sum_of([came, values]) == tuple(total):
            return "worker-missing", f"The values of worker {worker} are not in the sum.", None
    return None


__all__ = ["judge"]
