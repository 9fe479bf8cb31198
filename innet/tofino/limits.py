"""What one pipe of a Tofino 1 has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pipe:
    """Amounts per stage unless the name says otherwise; ingress and egress share the stages."""

    stages: int = 12
    stateful_alus: int = 4
    alu_word_bits: int = 32  # a cell is one word or a pair of them
    alu_inputs: int = 2  # words of the packet's header vector
    alu_comparisons: int = 2  # that involve the cell
    alu_instructions: int = 4  # different things that are done with one array
    logical_tables: int = 16
    sram_blocks: int = 80
    sram_bits: int = 1024 * 128
    tcam_blocks: int = 24
    tcam_entries: int = 512
    tcam_bits: int = 44
    containers: tuple[tuple[int, int], ...] = ((8, 64), (16, 96), (32, 64))  # of the whole pipe
    egress_parser_bytes: int = 160
    resubmit_bytes: int = 8

    @property
    def header_vector_bits(self) -> int:
        """Of all containers together."""
        return sum(width * count for width, count in self.containers)


PIPE = Pipe()
