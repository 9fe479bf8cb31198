"""The worker's end of the aggregation protocols, without sockets and clocks."""

from innet.protocol.counters import Counters
from innet.protocol.diagnosis import Diagnosis, SlotReader, SlotRegisters, Stall
from innet.protocol.settings import JobMembership, Timing, network_timing
from innet.protocol.slot_client import SlotClient, SlotState

__all__ = [
    "Counters",
    "Diagnosis",
    "JobMembership",
    "SlotClient",
    "SlotReader",
    "SlotRegisters",
    "SlotState",
    "Stall",
    "Timing",
    "network_timing",
]
