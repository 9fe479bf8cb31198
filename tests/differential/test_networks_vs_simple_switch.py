"""Every switch of a network of tree.p4 or hashed.p4 does what simple_switch does in its place.

INNET_FUZZ_SEEDS (1) in the environment says how many networks of each shape to try.
"""

from __future__ import annotations

import os
from collections import defaultdict

import numpy as np
import pytest
from support.bmv2 import needs_simple_switch
from support.networks import switch_traffic
from support.tiers import tiered

from innet.bmv2 import simple_switch
from innet.switch import Switch

SEEDS = int(os.environ.get("INNET_FUZZ_SEEDS", "1"))

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.timeout(0 if SEEDS > 2 else 300),
    needs_simple_switch,
]


@pytest.mark.parametrize(
    ("program", "shape"),
    tiered(
        [
            ("tree", {"racks": 2}),
            ("tree", {"racks": 2, "depth": 3}),
            ("collectives-tree", {"racks": 2}),
            ("hashed", {"racks": 2}),
        ],
        [("tree", {"racks": 2})],
        "recordings of simple_switch (tests/golden)",
    ),
    ids=str,
)
def test_equals_simple_switch(program, shape):
    for seed in range(100, 100 + SEEDS):
        values = 64 if program == "collectives-tree" else 32
        plan, seen = switch_traffic(program, values, seed, **shape)
        for planned in plan.switches:
            document, commands = planned.program.json(), list(planned.commands)
            registers = [array["name"] for array in document["register_arrays"]]
            theirs = simple_switch.run(document, seen[planned.name], commands, registers)
            for engine in ("interpret", "jit"):
                switch = Switch.load(document, engine=engine)
                for command in commands:
                    switch.command(command)
                answers = defaultdict(list)
                for port, data in switch.process(seen[planned.name]):
                    answers[port].append(data)
                assert {int(port): sent for port, sent in theirs.packets.items() if sent} == answers
                for name, cells in theirs.registers.items():
                    np.testing.assert_array_equal(switch.registers[name], cells, err_msg=name)
