"""Switches that sum without a program: what they take, by what their maker publishes.

``sharp`` is the network's switches, a Quantum-2 with SHARPv3. Packets and the tree of switches are
those of the program ``tree``: a host sends each value once, each switch sends one sum up, and the
root's goes down to all. ``nvls`` is the switches within hosts, NVLink's, and a ring between hosts.

Published are:

- element types: integers and floats of 16, 32 and 64 bits, bfloat16 and int8 (NVIDIA SHARP 3.5
  documentation, "NVIDIA SHARP Collective Library"). Of them a simulation has those of gradients;
- streaming reductions at a time: one tree for each port of a Quantum-2, where a Quantum has one for
  each switch (NVIDIA SHARP 3.13 documentation, "General Information");
- 64 ports of 400 Gbit/s (NVIDIA QM9700 data sheet);
- that large reductions reach 95 % of a link's rate (Graham et al., SHARP Streaming-Aggregation
  Hardware Design and Evaluation, ISC 2020).

Assumed are ``LATENCY``, and packets of 4,096 bytes, the largest MTU of InfiniBand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from innet.core.errors import InputError
from innet.core.settings import FaultSettings, SimulateSettings
from innet.sim import Network
from innet.topology.plan import SharedPlan

LATENCY = 300e-9
"""Seconds that such a switch of the network takes for a packet. Assumed: 8 bytes of 128 hosts in
two levels then take 3.6 microseconds over links of 500 ns. Published are 2.83, of a SwitchIB-2
(Graham et al., SHArP, COM-HPC 2016)."""
SHARP_PORTS, SHARP_RATE = 64, 400e9
WORDS = 1024
"""Words of 32 bits in a packet."""
ELEMENT_TYPES: Mapping[str, str] = MappingProxyType(
    {"dense": "float32", "bf16": "bfloat16", "fp16": "float16"}
)
"""What switches add of gradients, by the codec that is asked for; no codec runs."""


def with_fixed_function(
    settings: SimulateSettings, network: Network
) -> tuple[SimulateSettings, Network]:
    """What a simulation with ``settings.switch`` runs.

    Raises:
        InputError: something that such switches do not do, by the setting's name.
    """
    switch = settings.switch
    if not isinstance(settings.codec, str) or settings.codec not in ELEMENT_TYPES:
        raise InputError(
            f"{switch} adds elements of gradients as they are, of the types of the codecs "
            f"{', '.join(ELEMENT_TYPES)}; choose one of them, or switch p4 for {settings.codec}."
        )
    for name in ("program", "values_per_packet", "framing"):
        if name in settings.model_fields_set:
            raise InputError(f"{switch} has no {name}, as it runs no program; leave it out.")
    if network.loss or settings.faults != FaultSettings():
        raise InputError(
            f"{switch} sends nothing again, as its links lose nothing; leave faults and loss out."
        )
    if switch == "nvls":
        if settings.gpus_per_host == 1:
            raise InputError(
                "nvls sums within hosts with several GPUs; give gpus_per_host, or choose sharp."
            )
        return settings, network
    if network.rate > SHARP_RATE:
        raise InputError(
            f"sharp's links have up to {SHARP_RATE / 1e9:.0f} Gbit/s; give a lower rate of the "
            "network."
        )
    usual = {field.name: field.default for field in fields(Network)}
    if network.switch_latency == usual["switch_latency"]:
        network = replace(network, switch_latency=LATENCY)
    words = settings.elements_per_packet or WORDS
    changes = {"thin": True, "elements_per_packet": words}
    return settings.model_copy(update=changes), network


def check_ports(plan: SharedPlan) -> None:
    """Refuse a network whose switches have more ports than such a switch of the network.

    Raises:
        InputError: names one of them.
    """
    ends = [*plan.attachments().values(), *(end for link in plan.trunks() for end in link)]
    for name, ports in Counter(end.node for end in ends).items():
        if ports > SHARP_PORTS:
            raise InputError(
                f"{name} has {ports} ports, and a switch of sharp has {SHARP_PORTS}; give more "
                "racks, or a topology with more switches."
            )
