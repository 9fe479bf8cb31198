"""The log of ``innet simple-switch``: lines, files and levels as simple_switch's."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

from innet.core.errors import InputError

LEVELS = ("trace", "debug", "info", "warn", "error", "off")
MOST_BYTES = 5 << 20
"""Bytes of a log file, by default."""
MOST_FILES = 3
"""Files that are kept besides the present one, by default."""

_MILLISECONDS = 1000
_MOST_TEXTS = 4096  # kept before they are written
_BETWEEN = b"\n["  # the end of a line, and the time that the next one begins with


class Log:
    """Lines as simple_switch writes them: time, level and text.

    Lines may be kept until ``flush``, unless each is to be written at once.

    Args:
        level: the least of ``LEVELS`` that is written.
        console: write to standard output.
        path: append to this file, with .txt behind its name.
        flush: write each line at once.
        most_bytes: of a file. A longer one becomes FILE.1.txt, that becomes FILE.2.txt, and so on.
        most_files: how many of those are kept.

    Attributes:
        is_flushed: somebody reads each line when it is written.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(
        self,
        level: str = "trace",
        *,
        console: bool = False,
        path: str | None = None,
        flush: bool = False,
        most_bytes: int = MOST_BYTES,
        most_files: int = MOST_FILES,
    ) -> None:
        self._taken = frozenset(LEVELS[LEVELS.index(level) :])
        # Lines about packets are many; they wait until a batch of packets is done.
        self._flush = flush or (console and "debug" not in self._taken)
        self.is_flushed = flush or console
        self._most_bytes, self._most_files = most_bytes, most_files
        self._path = path
        self._size = 0
        self._texts: list[bytes] = []  # whole lines that are not written yet
        self._lock = threading.Lock()  # threads of Thrift's clients log, too
        self._millisecond = -1
        self._clock = ""
        thread = f"[thread {os.getpid()}] "
        self._heads = {each: f" [bmv2] [{each[0].upper()}] {thread}" for each in LEVELS}
        self._file: BinaryIO | None = sys.stdout.buffer if console else None
        if path is not None:
            try:
                self._open(path)
            except OSError as error:
                raise InputError(f"--log-file {path}: {error.strerror}.") from None

    def _open(self, path: str) -> None:
        self._file = Path(f"{path}.txt").open("ab")  # noqa: SIM115 - closed by close()
        self._size = self._file.tell()

    def takes(self, level: str) -> bool:
        """Whether lines of a level are written at all."""
        return self._file is not None and level in self._taken

    def __call__(self, level: str, text: str) -> None:
        """Write a line."""
        if level not in self._taken or self._file is None:
            return
        self.write_text(f"{self._time()}{self._heads[level]}{text}\n".encode())

    def heads(self) -> dict[str, str]:
        """What lines begin with now, by level, of the levels that are written."""
        now = self._time()
        return {level: f"{now}{self._heads[level]}" for level in self._taken}

    def write_text(self, text: bytes) -> None:
        """Write whole lines, each with what it begins with."""
        if self._file is None:
            return
        self._texts.append(text)
        if self._flush or len(self._texts) >= _MOST_TEXTS:
            self._write_texts()

    def _time(self) -> str:
        now = int(time.time() * _MILLISECONDS)
        if now != self._millisecond:
            self._millisecond = now
            clock = time.strftime("%H:%M:%S", time.localtime(now // _MILLISECONDS))
            self._clock = f"[{clock}.{now % _MILLISECONDS:03d}]"
        return self._clock

    def _write_texts(self) -> None:
        """Write the lines that were kept."""
        with self._lock:
            # Other threads may append meanwhile.
            texts = self._texts[:]
            del self._texts[: len(texts)]
            if self._file is None:
                return
            try:
                self._write(b"".join(texts))
                if self._flush:
                    self._file.flush()
            except OSError:
                self._give_up()

    def _give_up(self) -> None:
        """The disk is full, or no process reads the console: packets matter more than the log."""
        file, self._file = self._file, None
        if self._path is None:  # Python flushes the standard output once more at its end
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())
            os.close(nothing)
        elif file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _write(self, text: bytes) -> None:
        """Write lines, and begin other files where one is full."""
        assert self._file is not None
        while self._path is not None and self._size + len(text) > self._most_bytes:
            fitting = text.rfind(_BETWEEN, 0, max(0, self._most_bytes - self._size + 1))
            if fitting < 0 and not self._size:  # a line that is longer than a file
                fitting = text.find(_BETWEEN)
                if fitting < 0:
                    break
            self._file.write(text[: fitting + 1])
            text = text[fitting + 1 :]
            self._rotate(self._path)
            self._size = 0
        self._size += len(text)
        self._file.write(text)

    def _rotate(self, path: str) -> None:
        """Begin another file. The oldest one goes."""
        assert self._file is not None
        self._file.close()
        endings = ["", *(f".{i}" for i in range(1, self._most_files + 1))]
        names = [Path(f"{path}{each}.txt") for each in endings]
        for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)
        self._file = names[0].open("wb")

    def flush(self) -> None:
        """Write what is kept."""
        self._write_texts()
        with self._lock:
            if self._file is not None:
                try:
                    self._file.flush()
                except OSError:
                    self._give_up()

    def close(self) -> None:
        """Write what is kept, and close the file."""
        self.flush()
        if self._file is not None and self._path is not None:
            self._file.close()
            self._file = None
