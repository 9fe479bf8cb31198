"""Numba's ``njit`` for innet's own functions, whose machine code is kept on disk with more care.

Numba keeps the code of a function (``cache=True``) beside its source or in the user's cache folder,
and makes it again when that file changes. Here it is also made again when a file changes that the
function's file imports, since what it calls and the constants it uses are compiled into it; and
where code cannot be kept, or was damaged, or the disk is full, that costs time and nothing else.
Of several processes that need the same function, one compiles it and the others wait for its code.
What compiled code calls is compiled more cheaply (inner functions). An interruption or a
termination waits until a function is compiled.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache as once
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import config
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserProvidedCacheLocator,
)
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.runtime import nrt

from innet.core.compile_notice import tell_not_kept
from innet.core.process_lock import process_lock
from innet.core.waiting import hooks

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parents[1]  # the folder of innet itself
#: Imports that run with the module: what is indented is for later, or for type checkers.
_IMPORT = re.compile(r"^(?:import (innet[\w.]*)|from (innet[\w.]*) import (\([^)]*\)|.*))", re.M)


def njit(
    signature: Any = None,
    /,
    *,
    cache: bool = False,
    allocates: bool = True,
    **options: Any,
) -> Callable[[F], F]:
    """As ``numba.njit``, for a decorator with brackets.

    For compiled functions that call it, it is compiled without what Python calls it by and without
    its own machine code, which would not be used: a caller's code contains that of what it calls.
    Where Python calls it too, it is compiled once more.

    Args:
        signature: compile for this one, when it is first needed, and for no other; None for
            whatever comes.
        cache: keep the machine code for other processes, where there is a place.
        allocates: False for a function that makes no arrays and calls none that returns one. Then
            Numba does not count references in it. Where small steps work on tuples of many arrays,
            counting takes most of the time, as it is atomic.
        options: those of ``numba.njit``.
    """
    # Set for every function: one without the flag would inherit that of its first caller.
    options["_nrt"] = allocates

    def decorate(function: F) -> F:
        dispatcher: Any = numba.njit(**options)(function)
        if dispatcher is function:  # Numba is switched off
            return function
        dispatcher.compile = _with_environments(dispatcher)
        if cache:
            _keep(dispatcher, options)
        dispatcher.compile = defer_signals(dispatcher.compile)
        if signature is not None:
            _for_one_signature(dispatcher, signature)
        if "inline" not in options:  # else its callers get its source
            _link_inner(dispatcher, cache, signature, options)
        compiled: F = dispatcher
        return compiled

    return decorate


def _keep(dispatcher: Any, options: dict[str, Any], kind: type[_Kept] | None = None) -> None:
    """Have its code looked for on disk, and kept there, as Numba's ``enable_caching`` does.

    Where is found out when code is needed: that takes longer than importing the function.
    """
    compile_anew: Callable[[Any], Any] = dispatcher.compile

    @once
    def compiler() -> Callable[[Any], Any]:
        # Without a place, or without the sources to tell old code by, nothing is kept.
        try:
            dispatcher._cache = (kind or _Kept)(dispatcher.py_func, options)
        except (RuntimeError, OSError):
            place = Path(os.environ.get("INNET_CACHE_DIR") or "~/.cache/numba").expanduser()
            tell_not_kept(place, "nor can innet's own folder")
            return compile_anew
        return _by_one_process(dispatcher, compile_anew)

    def compile_or_find(signature: Any) -> Any:
        return compiler()(signature)

    dispatcher.compile = compile_or_find
    dispatcher.find_kept = compiler  # see is_cached


def _with_environments(dispatcher: Any) -> Callable[[Any], Any]:
    """Its ``compile``, after which errors of inner functions find what they are made of.

    A function's error with arguments of run time is made from Numba's environment of the function.
    Numba sets it where the function is compiled; for inner functions that is in their callers.
    """
    work = dispatcher.compile

    @wraps(work)
    def compile_and_set(signature: Any) -> Any:
        found = work(signature)
        for result in dispatcher.overloads.values():
            for environment in result._find_referenced_environments():
                result.library.codegen.set_env(environment.env_name, environment)
        return found

    return compile_and_set


def _for_one_signature(dispatcher: Any, signature: Any) -> None:
    """Numba would compile it now. Many a run needs few of a module's functions."""
    compile_it, template = dispatcher.compile, dispatcher.get_call_template

    def get_ready() -> Any:
        with global_compiler_lock:
            if dispatcher._can_compile:
                compile_it(signature)
                dispatcher.disable_compile()
        (only,) = dispatcher.overloads.values()
        return only

    def code_for(*arguments: Any) -> Any:
        only = get_ready()
        for value, wanted in zip(arguments, only.signature.args, strict=True):
            if dispatcher.typingctx.can_convert(dispatcher.typeof_pyval(value), wanted) is None:
                dispatcher._explain_matching_error(*arguments)
        return only.entry_point

    def call_template(arguments: Any, named: Any) -> Any:
        get_ready()
        return template(arguments, named)

    dispatcher.get_ready = get_ready
    # What Numba asks of a function that is called from Python and has no code yet, and of one that
    # another one calls.
    dispatcher._compile_for_args, dispatcher.get_call_template = code_for, call_template


def entry_of(function: Callable[..., Any]) -> int:
    """The address by which C, or compiled code, calls a function that has a signature.

    Calling by address keeps what few need out of what all compile.
    """
    dispatcher: Any = function
    compiled = dispatcher.get_ready()
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))


def _link_inner(dispatcher: Any, cache: bool, signature: Any, options: dict[str, Any]) -> None:
    """Let compiled code call another form of a function than Python does."""

    @once
    def inner() -> Any:
        # Made when it is needed: where all is on disk, that is never.
        # What Python or C would call it by takes a third of the time to compile.
        bare: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        bare["pipeline_class"] = _InnerCompiler
        form: Any = numba.njit(**bare, **options)(dispatcher.py_func)
        if cache:
            _keep(form, options, _KeptInner)
        form.compile = defer_signals(form.compile)
        if signature is not None:
            _for_one_signature(form, signature)
        return form

    # What Numba asks of a function that another one calls.
    # A form for each constant would be compiled; LLVM sees them where the code is put.
    dispatcher.get_call_template = lambda args, named: inner().get_call_template(
        tuple(map(_without_value, args)), {key: _without_value(each) for key, each in named.items()}
    )
    dispatcher.get_overload = lambda signature: inner().get_overload(signature)


def _without_value(kind: Any) -> Any:
    return types.unliteral(kind) if isinstance(kind, types.IntegerLiteral) else kind


def is_cached(function: Callable[..., Any]) -> bool:
    """Whether machine code of a compiled function is on disk, so that calling it is quick."""
    dispatcher: Any = function
    try:
        dispatcher.find_kept()
        kept = dispatcher._cache
        return isinstance(kept, _Kept) and bool(kept._cache_file._load_index())
    except Exception:  # what pickle raises for damaged files has no end
        return False


def _by_one_process(dispatcher: Any, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Its ``compile``, which waits where another process compiles the same function."""
    kept, context = dispatcher._cache, dispatcher.targetctx

    @wraps(work)
    def compile_once(signature: Any) -> Any:
        # Numba's own lock first: a thread that holds it may need this function.
        with (
            global_compiler_lock,
            kept.lock(signature, context) as is_new,
            hooks.compiling() if is_new else contextlib.nullcontext(),
        ):
            return work(signature)

    return compile_once


def defer_signals(work: Callable[..., Any]) -> Callable[..., Any]:
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

    def _load_data(self, name: str) -> Any:
        return _CodeReader(io.BytesIO(Path(self._data_path(name)).read_bytes())).load()


class _CodeReader(pickle.Unpickler):
    """Numba's own imports the home of each function that the code contains. For those of Numba and
    NumPy these are modules that only compiling needs, and that take longer than many a run.
    """

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return _environment if found is _rebuild_env else found


def _environment(home: str, constants: list[Any], name: str) -> Any:
    """Numba's environment of a function: what its errors are made of. Compiled code does not look
    at the globals in it, but for the name that they are kept by.
    """
    if not home.startswith("numba.") or home in sys.modules:
        return _rebuild_env(home, constants, name)
    found = lookup_environment(name)
    if found is None:
        found = Environment._memo[name] = Environment({"__name__": home})
        found.consts[:], found.env_name = constants, name
    return found


class _Kept(FunctionCache):
    """The machine code of one function on disk."""

    _impl_class = _Places

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        super().__init__(function)
        self._options = sorted(options.items())
        stamp = _stamp(Path(function.__code__.co_filename))
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, stamp)
        self._known: set[Any] = set()  # signatures that were looked for

    @contextlib.contextmanager
    def lock(self, signature: Any, target: Any) -> Iterator[bool]:
        """Held while the function is compiled for ``signature``, if it is not on disk yet; whether
        it is not.
        """
        with contextlib.ExitStack() as stack:
            is_new = False
            if signature not in self._known:
                self._known.add(signature)
                if is_new := not self._is_on_disk(signature, target):
                    with contextlib.suppress(OSError):
                        self._impl.locator.ensure_cache_path()
                    path = Path(self.cache_path, f"{self._impl.filename_base}.lock")
                    stack.enter_context(process_lock(path))
            yield is_new

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        # Numba's own leaves out LLVM's level of optimisation and the decorator's options.
        known: Any = config
        asked = known.OPT, known.LOOP_VECTORIZE, known.SLP_VECTORIZE, self._options
        return (*super()._index_key(signature, codegen), repr(asked))

    def _is_on_disk(self, signature: Any, target: Any) -> bool:
        try:
            key = self._index_key(signature, target.codegen())
            return key in self._cache_file._load_index()
        except Exception:  # what pickle raises for damaged files has no end
            return False

    def load_overload(self, signature: Any, target: Any) -> Any:
        # Numba's own loads first all that it knows to compile, which takes longer than many a run.
        # Machine code needs no more than the functions that count references; what is not on disk
        # is compiled, which loads the rest.
        nrt.rtsys.initialize(target)
        try:
            return self._load_overload(signature, target)
        except Exception:  # what pickle raises for damaged files has no end
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except OSError as error:  # no room, or no longer a folder to write to
            tell_not_kept(self.cache_path, error.strerror or str(error))


class InnerLibrary(JITCodeLibrary):
    """LLVM's code of functions that is linked into that of others and never runs by itself."""

    def _finalize_final_module(self) -> None:
        """As Numba's, without machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002 - Numba's signature
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        self._ensure_finalized()
        return self.name, self._get_module_for_linking().as_bitcode()

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing: the place of Numba's environment is in the code that this is linked into."""


class _InnerCompiler(Compiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


class _InnerPlaces(_Places):
    def get_filename_base(self, name: str, abiflags: str) -> str:
        return f"{super().get_filename_base(name, abiflags)}-inner"

    def rebuild(self, target: Any, payload: Any) -> Any:
        """As Numba's ``CompileResult._rebuild``, without machine code."""
        (name, bitcode), description, environment, signature, objectmode, *rest = payload
        lifted, annotation, reload_init, environments = rest
        for each in reload_init:
            each()
        library = InnerLibrary(target.codegen(), name)
        library._final_module = llvm.parse_bitcode(bitcode)
        library._finalize_final_module()
        result: Any = CompileResult
        return result(
            target_context=target,
            typing_context=target.typing_context,
            library=library,
            environment=environment,
            entry_point=target.get_executable(library, description, environment),
            fndesc=description,
            type_annotation=annotation,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            typing_error=None,
            call_helper=None,
            metadata=None,
            reload_init=reload_init,
            referenced_envs=environments,
        )


class _KeptInner(_Kept):
    """LLVM's code of an inner function on disk."""

    _impl_class = _InnerPlaces


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
