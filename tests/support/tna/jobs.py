"""Jobs on a TNA switch: its table entries, from the commands for the v1model programs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .switch import TnaSwitch

P4 = Path(__file__).parents[3] / "p4" / "tna"


class TnaSlots(TnaSwitch):
    """``slots.p4`` or ``harvest.p4`` of p4/tna, filled by the commands of ``Job.commands``."""

    def __init__(
        self, program: str = "slots", seed: int = 0, folder: Path = P4, **parameters: int
    ) -> None:
        super().__init__(folder / f"{program}.p4", seed, **parameters)
        self.nodes: list[tuple[int, int]] = []

    def command(self, line: str) -> None:
        """A command in simple_switch_CLI's language, as far as jobs need them."""
        name, *words = line.split()
        match name:
            case "table_add":
                key, data = " ".join(words[2:]).split("=>")
                fields = [int(word, 0) for word in key.split()]
                arguments = [int(word, 0) for word in data.split()]
                if words[0].endswith("admission"):
                    self._admit(*fields, *arguments)
                else:
                    [table] = (t for n, t in self.tables.items() if n.endswith(".deliver"))
                    table.add(fields, "address", arguments[:1])  # raw Ethernet: no IP, no UDP
            case "mc_mgrp_create":
                self.groups[int(words[0])] = []
            case "mc_node_create":
                self.nodes.append(
                    (int(words[1]), int(words[0]) + 1)
                )  # see p4/tna/include/parser.p4
            case "mc_node_associate":
                self.groups[int(words[0])].append(self.nodes[int(words[1])])
            case _:
                raise ValueError(line)

    def commands(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.command(line)

    def _admit(
        self, port: int, job: int, epoch: int, worker: int,
        worker_bit: int, full_bitmap: int, group: int, slot_base: int, slot_mask: int,
    ) -> None:  # fmt: skip
        [table] = (t for n, t in self.tables.items() if n.endswith(".admission"))
        table.add(
            (port, job << 16 | epoch, worker),
            "admit",
            (worker_bit, worker_bit.bit_length() - 1, full_bitmap, group, slot_base,
             ~slot_mask & 0xFFFF),
        )  # fmt: skip
