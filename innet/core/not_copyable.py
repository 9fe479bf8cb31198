"""A base for objects that cannot be copied: they hold compiled code or a connection."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from innet.core.errors import InputError


class NotCopyable:
    """Refuses to be copied or pickled, and says what to do instead.

    Python's own message would name some part of a part. A new process makes its own object.

    Attributes:
        instead_of_a_copy: what to do.
    """

    instead_of_a_copy: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        del protocol
        raise InputError(
            f"a {type(self).__name__} can be neither copied nor pickled, nor passed to another "
            f"process; {self.instead_of_a_copy}."
        )
