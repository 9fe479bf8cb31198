"""The packet layout as a scapy layer, for inspecting packets.

``Innet`` is the header and the values of ``innet.wire``. Importing this module registers it with
scapy behind UDP port 48879 and EtherType 0x88B5, so that ``Ether(frame).show()`` shows a whole
packet. No other module imports scapy. The import takes a good part of a second: import this module
only where it is used.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any, ClassVar

from innet.core.float_sums import FloatSum
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.wire import (
    ETHERTYPE,
    HEADER,
    MAGIC,
    MAX_VALUES,
    UDP_PORT,
    VERSION,
    WITHOUT_VALUES,
    HeaderFlag,
)

with warnings.catch_warnings():
    # Scapy warns of missing IPv6 routes, old ciphers and so on, which do not matter to a dissector.
    warnings.simplefilter("ignore")
    _logger = logging.getLogger("scapy")
    _level = _logger.level
    _logger.setLevel(logging.ERROR)
    from scapy.fields import (
        ByteEnumField,
        ByteField,
        FieldListField,
        FlagsField,
        IntField,
        ShortField,
        SignedIntField,
        XIntField,
        XShortField,
    )
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Packet, bind_layers
    from scapy.utils import checksum

    _logger.setLevel(_level)


_OPERATIONS = {int(each): each.name for each in (*ReduceOp, *CollectiveOp)}
_OPERATIONS |= {int(each): f"SUM of {each.name}" for each in FloatSum}
_OPERATIONS |= {WITHOUT_VALUES | each: f"{each.name} without values" for each in CollectiveOp}


class _Values(FieldListField):
    """The remaining 32-bit words, of a packet that has values; further bytes are left to the next
    layer (Raw).
    """

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, list[int]]:
        if pkt.getfieldval("operation") & WITHOUT_VALUES:
            return s, []
        full = len(s) - len(s) % 4
        rest, values = super().getfield(pkt, s[:full])
        return rest + s[full:], values


class Innet(Packet):
    """The innet header and values, version 3; the fields of innet.wire.HEADER."""

    name = "innet"
    fields_desc: ClassVar[list[Any]] = [
        XShortField("magic", MAGIC),
        ByteField("version", VERSION),
        ByteEnumField("operation", int(ReduceOp.SUM), _OPERATIONS),
        ShortField("job", 0),
        ShortField("epoch", 0),
        IntField("sequence", 1),
        ShortField("slot", 0),
        ByteField("slot_version", 0),
        FlagsField("flags", 0, 8, {each.value: str(each.name).lower() for each in HeaderFlag}),
        XIntField("bitmap", 0),
        ShortField("worker", 0),
        ShortField("count", 0),
        ShortField("elements", 1),
        ShortField("exponent", 0),  # of a chunk with an owner: its index
        XShortField("message", 0),
        XShortField("checksum", None),
        # By default scapy reads lists of at most a hundred items.
        _Values("values", [], SignedIntField("value", 0), max_count=MAX_VALUES),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the checksum if none was given."""
        if self.checksum is None:
            end = HEADER.itemsize
            pkt = pkt[: end - 2] + checksum(pkt).to_bytes(2, "big") + pkt[end:]
        return pkt + pay

    def mysummary(self) -> str:
        """One line for scapy's packet lists."""
        kind = "result" if int(self.flags) & HeaderFlag.RESULT else "update"
        has_owner = int(self.operation) & ~WITHOUT_VALUES in list(CollectiveOp)
        return str(
            self.sprintf(
                f"innet {kind} %operation% job %job%/%epoch% chunk %sequence% "
                "slot %slot%.%slot_version% worker %worker%"
                f"{' owner %exponent%' if has_owner else ''}"
            )
        )


bind_layers(UDP, Innet, dport=UDP_PORT)
bind_layers(UDP, Innet, sport=UDP_PORT)
bind_layers(UDP, Innet, sport=UDP_PORT, dport=UDP_PORT)  # what building a packet fills in
# Scapy takes the first match, and its VXLAN layer claims the same port for some switches.
UDP.payload_guess.sort(key=lambda guess: guess[1] is not Innet)
bind_layers(Ether, Innet, type=ETHERTYPE)
