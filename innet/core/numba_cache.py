"""Numba's ``njit`` for innet's own functions, whose machine code is kept on disk with more care.

Numba keeps the code of a function (``cache=True``) beside its source or in the user's cache folder,
and makes it anew when that file changes. Here it is made anew as well when a file changes that the
function's file imports, since what it calls and the constants it uses are compiled into it; and
where code cannot be kept, or was damaged, or the disk is full, that costs time and nothing else.
Of several processes that need the same function, one compiles it and the others wait for its code.
An interruption or a termination waits until a function is compiled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from functools import cache as once
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserProvidedCacheLocator,
)
from numba.core.compiler_lock import global_compiler_lock

from innet.core.process_lock import process_lock

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parents[1]  # the folder of innet itself
#: Imports that run with the module: what is indented is for later, or for type checkers.
_IMPORT = re.compile(r"^(?:import (innet[\w.]*)|from (innet[\w.]*) import (\([^)]*\)|.*))", re.M)


def njit(signature: Any = None, /, *, cache: bool = False, **options: Any) -> Callable[[F], F]:
    """As ``numba.njit``, for a decorator with brackets.

    Args:
        signature: compile for this one now, and for no other later; None for whatever comes.
        cache: keep the machine code for other processes, where there is a place.
        options: those of ``numba.njit``.
    """

    def decorate(function: F) -> F:
        dispatcher: Any = numba.njit(**options)(function)
        if dispatcher is function:  # Numba is told not to compile
            return function
        if cache:
            # Without a place, or without the sources to tell old code by, nothing is kept.
            with contextlib.suppress(RuntimeError, OSError):
                dispatcher._cache = _Kept(function)  # as its enable_caching does
        dispatcher.compile = undisturbed(dispatcher.compile)
        if isinstance(dispatcher._cache, _Kept):
            dispatcher.compile = _by_one_process(dispatcher)
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        compiled: F = dispatcher
        return compiled

    return decorate


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether machine code of a compiled function is on disk, so that calling it is quick."""
    kept = getattr(function, "_cache", None)
    try:
        return isinstance(kept, _Kept) and bool(kept._cache_file._load_index())
    except Exception:  # what pickle raises for damaged files has no end
        return False


def _by_one_process(dispatcher: Any) -> Callable[[Any], Any]:
    """Its ``compile``, which waits where another process compiles the same function."""
    work, kept, context = dispatcher.compile, dispatcher._cache, dispatcher.targetctx

    @wraps(work)
    def compile_once(signature: Any) -> Any:
        # Numba's own lock first: a thread that holds it may need this function.
        with global_compiler_lock, kept.lock(signature, context):
            return work(signature)

    return compile_once


def undisturbed(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with an interruption or a termination held back until it is done; with a second
    interruption, it is not.

    LLVM hands what it compiled over by a call of Python, from which no exception comes out: an
    interruption meanwhile would be printed and forgotten, or the code would be missing.
    """

    @wraps(work)
    def done(*arguments: Any, **named: Any) -> Any:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        before: dict[int, Any] = {n: each for n, each in handlers.items() if callable(each)}
        if threading.current_thread() is not threading.main_thread() or not before:
            return work(*arguments, **named)
        held: list[tuple[int, Any]] = []

        def hold(number: int, frame: Any) -> None:
            if number == signal.SIGINT and any(number == earlier for earlier, _ in held):
                before[number](number, frame)
            held.append((number, frame))

        for number in before:
            signal.signal(number, hold)
        try:
            return work(*arguments, **named)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if held:
                number, frame = held[-1]
                before[number](number, frame)

    return done


class _NamedFolder(UserProvidedCacheLocator):
    """$INNET_CACHE_DIR, for who can write neither to the installation nor to a home."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        folder = Path(os.environ["INNET_CACHE_DIR"], "functions")
        self._cache_path = str(folder / self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        if not os.environ.get("INNET_CACHE_DIR"):
            return None
        # Past the class between, which asks for Numba's own variable.
        return super(UserProvidedCacheLocator, cls).from_function(function, file)


class _Places(CompileResultCacheImpl):
    _locator_classes = [*CompileResultCacheImpl._locator_classes, _NamedFolder]  # noqa: RUF012 - as there


class _Files(IndexDataCacheFile):
    def save(self, key: Any, data: Any) -> None:
        """Numba counts files on and names them in the index first: of two processes that compile
        for different arguments, or after one that was ended in between, another would find the
        wrong code.
        """
        number = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:6])
        name = self._data_name(number)
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


class _Kept(FunctionCache):
    """The machine code of one function on disk."""

    _impl_class = _Places

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = _stamp(Path(function.__code__.co_filename))
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, stamp)
        self._known: set[Any] = set()  # signatures that were looked for

    @contextlib.contextmanager
    def lock(self, signature: Any, target: Any) -> Iterator[None]:
        """Held while the function is compiled for ``signature``, which is not on disk yet."""
        with contextlib.ExitStack() as stack:
            if signature not in self._known:
                self._known.add(signature)
                if not self._is_on_disk(signature, target):
                    with contextlib.suppress(OSError):
                        self._impl.locator.ensure_cache_path()
                    path = Path(self.cache_path, f"{self._impl.filename_base}.lock")
                    stack.enter_context(process_lock(path))
            yield

    def _is_on_disk(self, signature: Any, target: Any) -> bool:
        try:
            key = self._index_key(signature, target.codegen())
            return key in self._cache_file._load_index()
        except Exception:  # what pickle raises for damaged files has no end
            return False

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)
        except Exception:  # what pickle raises for damaged files has no end
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        with contextlib.suppress(OSError):  # no room, or no longer a folder to write to
            super().save_overload(signature, data)


@once
def _stamp(source: Path) -> str:
    """A digest of all that decides what a file's functions are compiled to: the file, and those of
    innet that it imports, directly or not.
    """
    digest = hashlib.sha256()
    seen: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += _imported(path)
    for path in sorted(seen):
        digest.update(_text(path))
    return digest.hexdigest()


@once
def _text(path: Path) -> bytes:
    return path.read_bytes()


@once
def _imported(path: Path) -> tuple[Path, ...]:
    """The files of innet that one of its files imports as it is imported itself."""
    found = []
    for plain, module, names in _IMPORT.findall(_text(path).decode()):
        home = plain or module
        # What is imported from a package may be one of its modules.
        for name in (home, *(f"{home}.{each}" for each in re.findall(r"\w+", names))):
            place = _PACKAGE.joinpath(*name.split(".")[1:])
            found += [place.with_suffix(".py"), place / "__init__.py"]
    return tuple(each for each in found if each.is_file())
