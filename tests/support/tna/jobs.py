"""Jobs on a TNA switch: its table entries, from the commands for the v1model programs."""

from __future__ import annotations

from pathlib import Path

from .switch import Table, TnaSwitch

P4 = Path(__file__).parents[3] / "p4" / "tna"


class TnaJob(TnaSwitch):
    """A program of p4/tna, filled by the commands for its v1model program."""

    PROGRAM: str

    def __init__(self, seed: int = 0, folder: Path = P4, **parameters: int) -> None:
        super().__init__(folder / f"{self.PROGRAM}.p4", seed, **parameters)
        self.nodes: list[tuple[int, int]] = []

    def command(self, line: str) -> None:
        """A command in simple_switch_CLI's language, as far as jobs need them."""
        name, *words = line.split()
        match name:
            case "table_add":
                key, data = " ".join(words[2:]).split("=>")
                fields = [int(word, 0) for word in key.split()]
                arguments = [int(word, 0) for word in data.split()]
                action = words[1].rsplit(".", 1)[-1]
                if action == "address":
                    # Raw Ethernet: neither IP nor UDP.
                    self.find("deliver").add(fields, "address", arguments[:1])
                else:
                    port, owner, *key_rest = _owned(fields, action)
                    getattr(self, action)(port, owner, *key_rest, *arguments)
            case "mc_mgrp_create":
                self.groups[int(words[0])] = []
            case "mc_node_create":
                # See p4/tna/include/parser.p4.
                self.nodes.append((int(words[1]), int(words[0]) + 1))
            case "mc_node_associate":
                self.groups[int(words[0])].append(self.nodes[int(words[1])])
            case "register_write":
                self.write_fence(int(words[1]), int(words[2]))
            case _:
                raise ValueError(line)

    def find(self, name: str) -> Table:
        [table] = (each for path, each in self.tables.items() if path.endswith(f".{name}"))
        return table

    def write_fence(self, slot_base: int, word: int) -> None:
        raise NotImplementedError


def _owned(fields: list[int], action: str) -> list[int]:
    """port, job and epoch as one number, and the rest; ``set_...`` have no port."""
    if action.startswith("set_"):
        fields = [-1, *fields]
    return [fields[0], fields[1] << 16 | fields[2], *fields[3:]]


def _number(bit: int) -> int:
    return bit.bit_length() - 1


def _outside(slot_mask: int) -> int:
    return ~slot_mask & 0xFFFF


class TnaSlots(TnaJob):
    PROGRAM = "slots"

    def admit(
        self, port: int, owner: int, worker: int,
        worker_bit: int, full_bitmap: int, group: int, slot_base: int, slot_mask: int,
    ) -> None:  # fmt: skip
        data = (worker_bit, _number(worker_bit), full_bitmap, group, slot_base, _outside(slot_mask))
        self.find("admission").add((port, owner, worker), "admit", data)


class TnaFloats(TnaSlots):
    PROGRAM = "fpisa"


class TnaHarvest(TnaSlots):
    PROGRAM = "harvest"


class TnaHarvest256(TnaSlots):
    PROGRAM = "harvest256"


class TnaTree(TnaJob):
    PROGRAM = "tree"

    def __init__(self, seed: int = 0, folder: Path = P4, **parameters: int) -> None:
        super().__init__(seed, folder, **parameters)
        self.fences: dict[int, int] = {}

    def write_fence(self, slot_base: int, word: int) -> None:
        self.fences[slot_base] = word

    def admit_worker(self, port: int, owner: int, worker: int, child_bit: int) -> None:
        data = (child_bit, _number(child_bit))
        self.find("admission").add((port, owner, worker, 0, 0), "worker", data)

    def admit_switch(self, port: int, owner: int, worker: int, child_bit: int, size: int) -> None:
        data = (child_bit, _number(child_bit), 0xFFFE - size)
        for has_bitmap in (0, 1):
            self.find("admission").add((port, owner, worker, 0, has_bitmap), "below", data)

    def admit_parent(self, port: int, owner: int, worker: int, own_bit: int) -> None:
        above = self.find("above")
        above.add((port, owner, worker, 1, (own_bit, own_bit)), "parent", (1,))
        above.add((port, owner, worker, 1, (0, 0)), "parent", (0,))

    def set_root(
        self, _: int, owner: int, full_bitmap: int, group: int, slot_base: int, slot_mask: int,
        height: int, allow_partial: int, workers: int,
    ) -> None:  # fmt: skip
        where = (full_bitmap, group, slot_base, _outside(slot_mask), height << 6, allow_partial)
        self._position(owner, slot_base, "root", (*where, workers))

    def set_inner(
        self, _: int, owner: int, full_bitmap: int, group: int, slot_base: int, slot_mask: int,
        height: int, allow_partial: int, up_port: int, identity: int,
    ) -> None:  # fmt: skip
        where = (full_bitmap, group, slot_base, _outside(slot_mask), height << 6, allow_partial)
        self._position(owner, slot_base, "inner", (*where, up_port, identity))

    def _position(self, owner: int, slot_base: int, action: str, data: tuple[int, ...]) -> None:
        """The fence is a cell of the entry."""
        position = self.find("position")
        position.add((owner,), action, data)
        fence = position.direct
        assert fence is not None
        fence.cells[max(fence.cells)] = int(self.fences[slot_base] == ~owner & 0xFFFFFFFF)
