"""The protocol between workers and their coordinator: lines of JSON, and one datagram.

Clients of a switch service send the lines over TCP. The service's greeting has the versions and a
nonce. The client's first line is a request with the same versions. If the service has a key, the
request proves that the client knows it, without sending the key. ``docs/service.md`` has the table
of messages.

The processes of a run in Mininet write the same requests for the next epoch and for registers to
standard output, and read the answers from standard input; see ``innet.processes.allreduce``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from typing import Any, TypeAlias

from innet.core.errors import InputError, NetworkError
from innet.wire import VERSION as WIRE_VERSION

VERSION = 1
MAX_LINE = 1 << 16  # bytes; of a service, that of its greeting
MAX_ANSWER = 1 << 23  # bytes: statistics of as many workers as a service can have
HELLO = b"INnetHI\n"  # followed by a token: the datagram that shows where a worker sends from
TOKEN = 16  # bytes
MAX_NAME = 100  # characters of a job's name
MAX_CONFIG = 2000  # characters of what its workers have in common
_MAX_DEPTH = 16  # levels of lists and objects within each other; statistics have half of them

Message: TypeAlias = dict[str, Any]


def encode(message: Message) -> bytes:
    """A message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message that a line holds.

    Raises:
        InputError: it is not a message.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError("a line is no JSON.") from None
    if not isinstance(message, dict):
        raise InputError("a line holds no JSON object.")
    if _is_deeper(message, _MAX_DEPTH):
        raise InputError(f"a line holds more than {_MAX_DEPTH} objects within each other.")
    return message


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether a value is nested deeper than ``levels``. Writing or displaying a deep value
    needs more of Python's stack than reading it, so a client could crash a service with one.
    """
    if not isinstance(value, (dict, list)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inside)


def greeting() -> Message:
    """The greeting of a service."""
    return {"service": VERSION, "wire": WIRE_VERSION, "nonce": secrets.token_hex(16)}


def check_greeting(message: Message, switch: str) -> str:
    """The nonce in a service's greeting.

    Raises:
        NetworkError: it is not an innet service, or has another version.
    """
    nonce = message.get("nonce")
    if not isinstance(nonce, str) or "service" not in message:
        raise NetworkError(f"{switch} is no innet switch service; check the address and the port.")
    check_versions(message, f"the switch at {switch}")
    return nonce


def check_versions(message: Message, who: str) -> None:
    """Refuse other versions.

    Raises:
        NetworkError: names both versions.
    """
    for name, local in (("service", VERSION), ("wire", WIRE_VERSION)):
        said = message.get(name)
        if said != local:
            raise NetworkError(
                f"{who} speaks version {said!r} of the {name} protocol, this side {local}; install "
                "the same innet everywhere."
            )


def request(kind: str, nonce: str, key: str | None, **fields: Any) -> Message:
    """The first line of a client."""
    message = {"request": kind, "service": VERSION, "wire": WIRE_VERSION, **fields}
    if key is not None:
        message["proof"] = proof(message, nonce, key)
    return message


def check_proof(message: Message, nonce: str, key: str | None) -> None:
    """Check that the sender of a first line knows the key.

    Raises:
        InputError: a key is needed but was not given, or is wrong.
    """
    if key is None:
        return
    said = message.get("proof")
    if said is None:
        raise InputError("the switch admits holders of its key only; pass the key.")
    right = proof(message, nonce, key)
    # compare_digest takes constant time, and accepts only ASCII.
    if not (isinstance(said, str) and said.isascii() and hmac.compare_digest(said, right)):
        raise InputError("the key is not the switch's.")


def proof(message: Message, nonce: str, key: str) -> str:
    """HMAC-SHA256 (RFC 2104) of the nonce and the rest of the message."""
    said = {name: value for name, value in message.items() if name != "proof"}
    text = nonce + json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hmac.new(key.encode(errors="surrogateescape"), text.encode(), hashlib.sha256).hexdigest()
