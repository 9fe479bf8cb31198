"""A whole program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from innet.switch.ir.calculations import (
    Calculation,
    Checksum,
    CounterArray,
    FieldList,
    LearnList,
    MeterArray,
    RegisterArray,
)
from innet.switch.ir.expressions import VALID, FieldRef
from innet.switch.ir.headers import Field, Header, HeaderType, Stack, Union, UnionStack
from innet.switch.ir.parser import Deparser, Parser, ValueSet
from innet.switch.ir.pipelines import ActionCall, ActionProfile, Conditional, Pipeline, Table
from innet.switch.ir.primitives import Action


@dataclass(frozen=True, slots=True)
class StandardMetadata:
    """Where the switch itself reads and writes; None where the program has no such field.

    ``field_aliases`` of the JSON are already applied: ``mcast_grp`` is
    intrinsic_metadata.mcast_grp, ``enq_timestamp`` queueing_metadata.enq_timestamp, and so on.
    """

    ingress_port: FieldRef
    egress_spec: FieldRef
    egress_port: FieldRef
    packet_length: FieldRef
    instance_type: FieldRef
    parser_error: FieldRef | None
    checksum_error: FieldRef | None
    mcast_grp: FieldRef | None
    egress_rid: FieldRef | None
    priority: FieldRef | None
    ingress_global_timestamp: FieldRef | None
    egress_global_timestamp: FieldRef | None
    enq_timestamp: FieldRef | None
    enq_qdepth: FieldRef | None
    deq_timedelta: FieldRef | None
    deq_qdepth: FieldRef | None
    qid: FieldRef | None


@dataclass(frozen=True, slots=True)
class Program:
    """A whole v1model program.

    Attributes:
        name: what the JSON calls the source, for people.
        version: of the JSON format.
        fingerprint: SHA-256 (hex) of what the JSON says, source positions left out: equal programs
            have equal fingerprints, so caches use it.
        errors: name to code, with the core library's errors always in it.
        enums: enum name to member name to value.
        externs: names of extern instances of types that v1model does not have.
    """

    name: str
    version: tuple[int, int]
    fingerprint: str
    header_types: tuple[HeaderType, ...]
    headers: tuple[Header, ...]
    stacks: tuple[Stack, ...]
    unions: tuple[Union, ...]
    union_stacks: tuple[UnionStack, ...]
    errors: Mapping[str, int]
    enums: Mapping[str, Mapping[str, int]]
    standard: StandardMetadata
    parser: Parser
    value_sets: tuple[ValueSet, ...]
    deparser: Deparser
    calculations: tuple[Calculation, ...]
    checksums: tuple[Checksum, ...]
    field_lists: tuple[FieldList, ...]
    learn_lists: tuple[LearnList, ...]
    registers: tuple[RegisterArray, ...]
    counters: tuple[CounterArray, ...]
    meters: tuple[MeterArray, ...]
    actions: tuple[Action, ...]
    tables: tuple[Table, ...]
    conditionals: tuple[Conditional, ...]
    action_calls: tuple[ActionCall, ...]
    action_profiles: tuple[ActionProfile, ...]
    ingress: Pipeline
    egress: Pipeline
    externs: tuple[str, ...]

    @property
    def hashes(self) -> tuple[Calculation, ...]:
        """All hashes: ``calculations``, then the selectors of ``action_profiles``."""
        selectors = tuple(each.selector for each in self.action_profiles if each.selector)
        return (*self.calculations, *selectors)

    def selector_hash(self, profile: int) -> int:
        """The position in ``hashes`` of the selector of a profile that has one."""
        before = sum(each.selector is not None for each in self.action_profiles[:profile])
        return len(self.calculations) + before

    def type_of(self, header: int) -> HeaderType:
        """The type of header instance ``header``."""
        return self.header_types[self.headers[header].type]

    def field(self, reference: FieldRef) -> Field:
        """What is known of a field; not for ``VALID``."""
        return self.type_of(reference.header).fields[reference.field]

    def name_of(self, reference: FieldRef) -> str:
        """``header.field``, for people."""
        header = self.headers[reference.header]
        if reference.field == VALID:
            return f"{header.name}.$valid$"
        return f"{header.name}.{self.field(reference).name}"
