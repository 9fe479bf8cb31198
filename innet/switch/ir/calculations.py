"""Calculations, checksums, lists of fields, and arrays that outlive a packet."""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch.ir.expressions import BoolExpression, FieldRef, HeaderRef


@dataclass(frozen=True, slots=True)
class CalculationConstant:
    """``value`` in ``width`` bits."""

    value: int
    width: int


@dataclass(frozen=True, slots=True)
class Payload:
    """The packet's bytes that the parser left; always the last of the inputs."""


CalculationInput = FieldRef | CalculationConstant | HeaderRef | Payload


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash of the inputs' bits one after the other, padded with zero bits to a byte at the end
    and before the payload.

    Inputs of invalid headers are left out; a payload starts at a byte, after zero bits.
    ``algorithm``: one of crc16, crc32, crc16_custom, crc32_custom, csum16, xor16, identity, random,
    cksum16 and so on, as the JSON names it.
    """

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]


@dataclass(frozen=True, slots=True)
class Checksum:
    """``target`` holds ``calculation``.

    Skipped when ``condition`` (None: always) is false; verifying also when the target's header is
    invalid. In the order of the program: an update sees the ones before it.
    """

    name: str
    target: FieldRef
    calculation: int
    update: bool
    verify: bool
    condition: BoolExpression | None


@dataclass(frozen=True, slots=True)
class FieldList:
    """What a clone, resubmission or recirculation keeps of the metadata. ``id`` is the run-time
    value that names the list.
    """

    id: int
    name: str
    elements: tuple[FieldRef | CalculationConstant, ...]


@dataclass(frozen=True, slots=True)
class LearnList:
    """What a digest carries. ``id`` is the run-time value that names the list."""

    id: int
    name: str
    elements: tuple[FieldRef, ...]


@dataclass(frozen=True, slots=True)
class RegisterArray:
    """``size`` cells of ``width`` bits, 0 at the start."""

    name: str
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class CounterArray:
    """Counts packets and bytes. ``table``: the table whose entries it counts, None when indexed."""

    name: str
    size: int
    table: int | None


@dataclass(frozen=True, slots=True)
class MeterArray:
    """``bytes``: rates are in bytes, else packets. ``table`` and ``result``: for a direct meter the
    table and the field that receives the color.
    """

    name: str
    size: int
    bytes: bool
    rates: int
    table: int | None
    result: FieldRef | None
