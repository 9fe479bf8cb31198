"""From the emitted function to an object file, by Numba and LLVM.

1. ``StraightPipeline``, which emitted modules name, is how Numba compiles the function.
2. ``machine_code`` takes the compiled function out of Numba's hands: an object file that runs
   without Numba (``native``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import analysis, types
from numba.core import ir as numba_ir
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.typed_passes import NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, TranslateByteCode

from innet.core.numba_cache import InnerLibrary, defer_signals
from innet.switch.jit.native import ENTER, RELEASE, Kind, MachineCode, word_count

__all__ = ["StraightPipeline"]  # what emitted code may import

# ── How Numba compiles ───────────────────────────────────────────────────────────────────────────
#
# Only what such code needs. Numba's own pipeline takes time and memory that grow with the square of
# a function's length, from three causes that code as regular as this can do without:
#
# * Static single assignment goes over the whole function once for every variable that is assigned
#   twice. Emitted code gives each variable one type, and LLVM does the same work in a moment.
# * The lifetime of every variable, temporaries included, is followed through every block, and that
#   three times. Only references to arrays are counted, and those have few names.
# * Closures, array expressions, literal unrolling and dead branches are looked for; there are none.
#
# Types are inferred by Numba's own pass. It tries all that an operator may mean wherever one is,
# which was half of the time: here the answer is kept for each kind of operands.
#
# So 8,000 lines take a minute and 630 MB; with Numba's own pipeline they were given up after six
# minutes and ten gigabytes. A number that a module defines passes through ``int64()`` before it is
# assigned, or its literal type would be the variable's.

_Names = dict[int, set[str]]


# An AnalysisPass, as Numba's own pass that does this is: others may not leave Del statements.
@register_pass(mutates_CFG=True, analysis_only=False)
class ReferenceLifetimes(AnalysisPass):
    """Put Del statements behind the last use of what holds a reference."""

    _name = "reference_lifetimes"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        blocks = state.func_ir.blocks
        models = state.targetctx.data_model_manager
        held = {name for name, kind in state.typemap.items() if models[kind].contains_nrt_meminfo()}
        graph = analysis.compute_cfg_from_blocks(blocks)
        found = analysis.compute_use_defs(blocks)
        uses, definitions = _only(held, found.usemap), _only(held, found.defmap)
        live = analysis.compute_live_map(graph, blocks, uses, definitions)
        dead = analysis.compute_dead_maps(graph, blocks, live, definitions)
        for label, block in blocks.items():
            _insert(block, dead.internal[label], dead.escaping[label])
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class TypeInference(NopythonTypeInference):
    """Numba's own, which finds out once what a function or an operator does with operands of the
    same types.
    """

    def run_pass(self, state: Any) -> bool:
        # Numba compiles one function at a time, so no other thread infers types meanwhile.
        kinds: tuple[Any, ...] = types.BaseFunction, types.Dispatcher
        own = [kind.get_call_type for kind in kinds]
        for kind, resolve in zip(kinds, own, strict=True):
            kind.get_call_type = _resolve_once(resolve)
        try:
            return bool(super().run_pass(state))
        finally:
            for kind, resolve in zip(kinds, own, strict=True):
                kind.get_call_type = resolve


_resolved: dict[Any, Any] = {}


def _resolve_once(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws:
            return resolve(function, context, args, kws)
        # The function's type names all that it may mean: one that is extended is another key.
        key = context, function, args
        if key not in _resolved:
            _resolved[key] = resolve(function, context, args, kws)
        return _resolved[key]

    return get_call_type


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """Numba's own, in which LLVM compiles; an interruption takes effect before or after."""

    _name = "undisturbed_lowering"

    def run_pass(self, state: Any) -> bool:
        return bool(defer_signals(super().run_pass)(state))


class StraightPipeline(CompilerBase):
    """For ``njit(pipeline_class=StraightPipeline)``: functions without closures, generators,
    exceptions and ``with``, in which each variable has one type.
    """

    def define_pipelines(self) -> list[Any]:
        state = self.state
        if state.flags.no_cpython_wrapper:  # then ``machine_code`` makes the machine code
            state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        passes = PassManager("straight")
        passes.add_pass(TranslateByteCode, "analyzing bytecode")
        passes.add_pass(FixupArgs, "fix up args")
        passes.add_pass(TypeInference, "nopython frontend")
        passes.add_pass(ReferenceLifetimes, "lifetimes of references")
        passes.add_pass(Lowering, "native lowering")
        passes.add_pass(NoPythonBackend, "nopython mode backend")
        passes.finalize()
        return [passes]


def _only(held: set[str], names: _Names) -> _Names:
    return {label: each & held for label, each in names.items()}


def _insert(block: Any, inside: set[str], escaped: set[str]) -> None:
    """Add Del statements: of ``inside`` behind the last use, of ``escaped`` where they arrive.

    A block's last statement leaves it; what that one uses is never among ``inside``.
    """
    left = set(inside)
    reversed_body = [block.body[-1]]
    for statement in reversed(block.body[:-1]):
        last = {variable.name for variable in statement.list_vars()} & left
        left -= last
        reversed_body += [numba_ir.Del(name, loc=statement.loc) for name in sorted(last)]
        reversed_body.append(statement)
    arrived = [numba_ir.Del(name, loc=block.body[0].loc) for name in sorted(escaped)]
    block.body = [*arrived, *reversed(reversed_body)]


# ── The object file ──────────────────────────────────────────────────────────────────────────────
#
# Numba's module holds the function and two wrappers that Python calls it by. Of these only the
# function is kept. Added are an entry that takes its arguments from a frame (``native``), and the
# functions of Numba's runtime that allocate and free memory. They do what Numba's do: an array's
# owner starts with the number of its references, what to call at the end and with what, the address
# and the size (``MemInfo`` of Numba's ``nrt.h``).

_WORD, _NUMBER = ir.IntType(64), ir.IntType(32)
_POINTER = ir.IntType(8).as_pointer()

_ALLOCATE, _DESTROY = "NRT_MemInfo_alloc_aligned", "NRT_MemInfo_call_dtor"
_DECREASE = "NRT_decref"
_PLAIN = {"NRT_Allocate": "malloc", "NRT_Free": "free"}
_OWN_RUNTIME = frozenset((_ALLOCATE, _DESTROY, *_PLAIN))
_OWNER_WORDS = 6


def machine_code(dispatcher: Any, growth: int, row: int) -> MachineCode:
    """The object file of the only compiled version of a function, and how it is called.

    ``growth`` and ``row`` are passed on (see ``MachineCode``).
    """
    # Numba's module, and in it the function itself.
    ((signature, compiled),) = dispatcher.overloads.items()
    module = llvm.parse_assembly(dispatcher.inspect_llvm(signature))
    name = compiled.fndesc.llvm_func_name
    function = module.get_function(name)
    arguments = _kinds(compiled.signature.args)
    returned = _kinds(compiled.signature.return_type.types)
    # Before the arguments come pointers to what is returned and to what was raised.
    words = [str(each.type) == "i64" for each in function.arguments][2:]
    if len(words) != sum(map(word_count, arguments)):
        raise RuntimeError(f"Numba {numba.__version__} passes arrays in a way unknown to innet")
    # Drop the wrappers. Add the entry, and Numba's runtime where innet's own part of it will do.
    _hide_all_but(module, (name, _DECREASE))
    foreign = _foreign(module)
    own = foreign <= _OWN_RUNTIME
    module.link_in(llvm.parse_assembly(str(_entry(name, words, sum(map(word_count, returned))))))
    if own:
        module.link_in(llvm.parse_assembly(str(_runtime())))
    _add_release(module)
    _hide_all_but(module, (ENTER, RELEASE))
    return MachineCode(
        growth=growth,
        row=row,
        arguments=arguments,
        returned=returned,
        needs_numba=not own,
        code=_target_machine().emit_object(module),
    )


def _kinds(listed: Iterable[Any]) -> tuple[Kind, ...]:
    return tuple(
        (str(each.dtype), each.ndim) if isinstance(each, types.Array) else (str(each), 0)
        for each in listed
    )


def _target_machine() -> Any:
    """That of Numba's own code generator."""
    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    reloc = "static" if triple.startswith(("x86", "i386", "i686")) else "default"
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )


def _hide_all_but(module: Any, names: tuple[str, ...]) -> None:
    """Make all other functions private, and remove what nothing calls then."""
    for function in module.functions:
        if not function.is_declaration and function.name not in names:
            function.linkage = "internal"
    builder = llvm.create_pass_builder(_target_machine(), llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


def _foreign(module: Any) -> frozenset[str]:
    """The functions that the module calls and that are in no library of the process."""
    process = ctypes.CDLL(None)
    return frozenset(
        function.name
        for function in module.functions
        if function.is_declaration
        and not function.name.startswith("llvm.")
        and not hasattr(process, function.name)
    )


def _entry(name: str, words: list[bool], returned: int) -> ir.Module:
    """``ENTER``: calls ``name`` with its arguments from a frame; ``words`` says which of them are
    integers, and not pointers.
    """
    module = ir.Module("entry")
    kinds = [_POINTER, _POINTER, *(_WORD if word else _POINTER for word in words)]
    function = ir.Function(module, ir.FunctionType(_NUMBER, kinds), name)
    enter = ir.Function(module, ir.FunctionType(_NUMBER, [_WORD.as_pointer()]), ENTER)
    builder = ir.IRBuilder(enter.append_basic_block())
    (frame,) = enter.args

    def place(index: int) -> Any:
        return builder.gep(frame, [_WORD(index)])

    results = builder.bitcast(place(len(words)), _POINTER)
    raised = builder.bitcast(place(len(words) + returned), _POINTER)
    arguments = []
    for index, word in enumerate(words):
        value = builder.load(place(index))
        arguments.append(value if word else builder.inttoptr(value, _POINTER))
    builder.ret(builder.call(function, [results, raised, *arguments]))
    return module


def _runtime() -> ir.Module:
    """The memory of arrays, by ``malloc`` and ``free``."""
    module = ir.Module("runtime")
    malloc = ir.Function(module, ir.FunctionType(_POINTER, [_WORD]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER]), "free")
    for name, same in _PLAIN.items():
        called = module.get_global(same)
        function = ir.Function(module, called.function_type, name)
        builder = ir.IRBuilder(function.append_basic_block())
        value = builder.call(called, function.args)
        builder.ret(value) if same == "malloc" else builder.ret_void()

    allocate = ir.Function(module, ir.FunctionType(_POINTER, [_WORD, _NUMBER]), _ALLOCATE)
    builder = ir.IRBuilder(allocate.append_basic_block())
    size, align = allocate.args[0], builder.zext(allocate.args[1], _WORD)
    header = builder.add(align, _WORD(8 * _OWNER_WORDS))
    had = builder.call(malloc, [builder.add(size, header)])
    with builder.if_then(builder.icmp_unsigned("==", had, _POINTER(None))):
        builder.ret(had)
    end = builder.add(builder.ptrtoint(had, _WORD), builder.sub(header, _WORD(1)))
    data = builder.and_(end, builder.neg(align))
    owner = builder.bitcast(had, _WORD.as_pointer())
    for index, value in enumerate((_WORD(1), _WORD(0), _WORD(0), data, size, _WORD(0))):
        builder.store(value, builder.gep(owner, [_WORD(index)]))
    builder.ret(had)

    destroy = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER]), _DESTROY)
    builder = ir.IRBuilder(destroy.append_basic_block())
    builder.call(free, [destroy.args[0]])
    builder.ret_void()
    return module


def _add_release(module: Any) -> None:
    """``RELEASE``: one reference less; nothing where the code has no arrays of its own."""
    present = any(function.name == _DECREASE for function in module.functions)
    added = ir.Module("release")
    kind = ir.FunctionType(ir.VoidType(), [_POINTER])
    release = ir.Function(added, kind, RELEASE)
    builder = ir.IRBuilder(release.append_basic_block())
    if present:
        builder.call(ir.Function(added, kind, _DECREASE), [release.args[0]])
    builder.ret_void()
    module.link_in(llvm.parse_assembly(str(added)))
