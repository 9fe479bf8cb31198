"""The wire format: packet layout, and vectorized packing and parsing of whole batches.

Everything is big endian. A frame is Ethernet / IPv4 without options / UDP / innet header / values
(framing "udp"), or Ethernet with innet's EtherType / innet header / values (framing "raw").
A frame has all ``V`` values of its layout, of which ``elements`` says how many are used, or ends
with the header (WITHOUT_VALUES).
The layout is a numpy dtype, so that one expression reads or writes a field of thousands of frames:
``layout.view(frames)["innet"]["sequence"]``.
"""

from innet.core.settings import Framing
from innet.wire.layout import (
    CONGESTED,
    ETHERNET_HEADER,
    ETHERTYPE,
    HEADER,
    IPV4_HEADER,
    MAGIC,
    MAX_VALUES,
    UDP_HEADER,
    UDP_PORT,
    VERSION,
    WITHOUT_VALUES,
    Endpoint,
    Field,
    Frames,
    HeaderFlag,
    PacketLayout,
    Records,
)
from innet.wire.packing import internet_checksum, pack, ready, seal
from innet.wire.parsing import Batch, FrameRefusal, parse, parse_strict

__all__ = [
    "CONGESTED",
    "ETHERNET_HEADER",
    "ETHERTYPE",
    "HEADER",
    "IPV4_HEADER",
    "MAGIC",
    "MAX_VALUES",
    "UDP_HEADER",
    "UDP_PORT",
    "VERSION",
    "WITHOUT_VALUES",
    "Batch",
    "Endpoint",
    "Field",
    "FrameRefusal",
    "Frames",
    "Framing",
    "HeaderFlag",
    "PacketLayout",
    "Records",
    "internet_checksum",
    "pack",
    "parse",
    "parse_strict",
    "ready",
    "seal",
]
