"""The worker's end for hashed aggregators: that of the slot pool, with a server to ask after."""

from __future__ import annotations

from dataclasses import replace

from innet.protocol.diagnosis import Diagnosis, SlotReader
from innet.protocol.slot_client import SlotClient


class HashedClient(SlotClient):
    """A worker whose results come from a parameter server.

    Chunks, window, timers and retransmission are those of ``SlotClient``: the server keeps two
    copies of a slot as the slot pool does, and a contribution that is sent again is marked RESEND.
    """

    in_order = False  # what meets another's aggregator goes a longer way, to the server

    def diagnose(self, read: SlotReader, now: float | None = None) -> Diagnosis | None:
        """As ``SlotClient.diagnose``; where nobody is missing, it points to the server."""
        diagnosis = super().diagnose(read, now)
        if diagnosis is None or 0 < len(diagnosis.missing) < self.member.workers:
            return diagnosis
        hint = " Results come from the parameter server: see that it runs and can be reached."
        return replace(diagnosis, text=diagnosis.text + hint)
