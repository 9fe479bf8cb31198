"""Messages that wait for a controller: bounded, so that a slow one costs no memory.

Packets, digests and idle entries that do not fit are dropped, as P4Runtime allows. A controller
that does not even take the notices of mastership is cut off.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

from innet.p4runtime.messages import p4
from innet.p4runtime.status import StatusError, resource_exhausted

MOST_MESSAGES = 4096
MOST_BYTES = 8 << 20
_MOST_NOTICES = 1024


class Stream:
    """What waits for one controller.

    Args:
        loop: runs the stream's handler.

    Attributes:
        dropped: messages that did not fit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._notices = 0
        self._event = asyncio.Event()
        self._end: StatusError | None = None
        self._is_over = False
        self.dropped = 0

    def send(self, message: Any) -> None:
        """Give it a StreamMessageResponse; by any thread."""
        data = message.SerializeToString()
        is_notice = message.WhichOneof("update") == "arbitration"
        with self._lock:
            if self._end is not None or self._is_over:
                return
            if is_notice:
                self._notices += 1
                if self._notices > _MOST_NOTICES:
                    self._waiting.clear()
                    self._end = resource_exhausted("the controller reads its stream too slowly")
            elif len(self._waiting) >= MOST_MESSAGES or self._bytes + len(data) > MOST_BYTES:
                self.dropped += 1
                return
            if self._end is None:
                self._waiting.append(data)
                self._bytes += len(data)
        self._wake()

    def end(self, error: StatusError | None) -> None:
        """End the stream after what waits: with an error, or well."""
        with self._lock:
            self._end = self._end or error
            self._is_over = True
        self._wake()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return  # the loop has ended, and there is no reader

    async def next(self) -> bytes | None:
        """The next message; None at the end.

        Raises:
            StatusError: the stream ends with it.
        """
        while True:
            with self._lock:
                if self._waiting:
                    data = self._waiting.popleft()
                    self._bytes -= len(data)
                    if not self._waiting:
                        self._notices = 0
                    return data
                if self._end is not None:
                    raise self._end
                if self._is_over:
                    return None
                self._event.clear()
            await self._event.wait()


def error_message(status: StatusError, request: Any) -> Any:
    """The StreamMessageResponse that reports an error of a stream's request."""
    response = p4.StreamMessageResponse()
    response.error.canonical_code = status.code
    response.error.message = str(status)
    kind = request.WhichOneof("update")
    if kind == "packet":
        response.error.packet_out.packet_out.CopyFrom(request.packet)
    elif kind == "digest_ack":
        response.error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        response.error.other.SetInParent()
    return response
