"""Event loop, links with faults, and packet counts."""

from innet.network.event_loop import ClockedTransport, Host, Transport, at_port, drive
from innet.network.faults import FaultCounters, Faults, FaultyTransport, Outage
from innet.network.traffic import Direction, Process, Recorder, Tap, Traffic

__all__ = [
    "ClockedTransport",
    "Direction",
    "FaultCounters",
    "Faults",
    "FaultyTransport",
    "Host",
    "Outage",
    "Process",
    "Recorder",
    "Tap",
    "Traffic",
    "Transport",
    "at_port",
    "drive",
]
