"""How packets move between hosts and switch."""

from innet.network.event_loop import Host, Transport, drive
from innet.network.faults import FaultCounters, Faults, FaultyTransport, Outage
from innet.network.links import NetworkTransport, SwitchPort
from innet.network.memory import Direction, MemoryTransport, Process, Tap, Traffic
from innet.network.recorder import Recorder

__all__ = [
    "Direction",
    "FaultCounters",
    "Faults",
    "FaultyTransport",
    "Host",
    "MemoryTransport",
    "NetworkTransport",
    "Outage",
    "Process",
    "Recorder",
    "SwitchPort",
    "Tap",
    "Traffic",
    "Transport",
    "drive",
]
