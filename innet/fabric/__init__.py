"""How packets move between hosts and switch."""

from innet.fabric.base import Fabric, Host, drive
from innet.fabric.faults import FaultCounters, Faults, FaultyFabric, Outage
from innet.fabric.memory import Direction, MemoryFabric, Process, Tap, Traffic
from innet.fabric.network import NetworkFabric, SwitchPort
from innet.fabric.recorder import Recorder

__all__ = [
    "Direction",
    "Fabric",
    "FaultCounters",
    "Faults",
    "FaultyFabric",
    "Host",
    "MemoryFabric",
    "NetworkFabric",
    "Outage",
    "Process",
    "Recorder",
    "SwitchPort",
    "Tap",
    "Traffic",
    "drive",
]
