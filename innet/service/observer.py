"""A look at a running service from elsewhere: its statistics over the control connection."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from innet.core.errors import InputError, NetworkError, StalledError
from innet.service.channel import Channel, resolve
from innet.service.protocol import Message, check_greeting, request


class Observer:
    """Asks a service for its statistics; it takes no part in any job.

    Args:
        switch: the service's address, HOST:PORT.
        key: the service's, if it has one.
        seconds: that connecting and each answer may take.

    Raises:
        InputError: an address that is none, or a wrong key.
        NetworkError: the service cannot be reached, or is another version.
        StalledError: it does not answer in time.
    """

    def __init__(self, switch: str, key: str | None = None, seconds: float = 5.0) -> None:
        self._switch = switch
        self._seconds = seconds
        where = resolve(switch)
        try:
            self._channel = Channel.connect(where, seconds)
        except OSError as error:
            raise NetworkError(
                f"cannot reach a switch at {switch}: {error.strerror or error}."
            ) from None
        try:
            nonce = check_greeting(self._hear(), switch)
            self._channel.say(request("statistics", nonce, key))
            self._first: dict[str, Any] | None = self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Observer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics now, as ``SwitchService.statistics`` gives them.

        Raises:
            NetworkError, StalledError: the service is gone, or does not answer.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        self._channel.say({"request": "statistics"})
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        message = self._hear()
        if "error" in message:
            raise InputError(f"the switch at {self._switch} refuses: {message['error']}")
        document = message.get("statistics")
        if not isinstance(document, dict):
            raise NetworkError(f"the switch at {self._switch} is gone.")
        return document

    def _hear(self) -> Message:
        message = self._channel.hear(time.monotonic() + self._seconds)
        if message is None:
            raise StalledError(
                f"the switch at {self._switch} did not answer within {self._seconds:g} s."
            )
        return message
