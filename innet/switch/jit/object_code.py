"""From a function that Numba compiled to an object file that runs without Numba.

Numba's module holds the function and two wrappers that Python calls it by. Of these only the
function is kept. An entry is added that takes its arguments from a frame (``native``), and the
functions of Numba's runtime that have and give back memory. They are Numba's in
effect: an array's owner starts with the number of its references, what to call at the end and with
what, the address and the size (``MemInfo`` of Numba's ``nrt.h``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import types
from numba.core.registry import cpu_target

from innet.switch.jit.native import ENTER, RELEASE, Kind, MachineCode, words_of

_WORD, _NUMBER = ir.IntType(64), ir.IntType(32)
_POINTER = ir.IntType(8).as_pointer()

_ALLOCATE, _DESTROY = "NRT_MemInfo_alloc_aligned", "NRT_MemInfo_call_dtor"
_DECREASE = "NRT_decref"
_PLAIN = {"NRT_Allocate": "malloc", "NRT_Free": "free"}
_OWN_RUNTIME = frozenset((_ALLOCATE, _DESTROY, *_PLAIN))
_OWNER_WORDS = 6


def machine_code(dispatcher: Any, growth: int) -> MachineCode:
    """The object file of the only compiled version of a function, and how it is called.

    ``growth`` is passed on (``MachineCode.growth``).
    """
    ((signature, compiled),) = dispatcher.overloads.items()
    module = llvm.parse_assembly(dispatcher.inspect_llvm(signature))
    name = compiled.fndesc.llvm_func_name
    function = module.get_function(name)
    arguments = _kinds(compiled.signature.args)
    returned = _kinds(compiled.signature.return_type.types)
    # Before the arguments come the places for what is returned and for what was raised.
    words = [str(each.type) == "i64" for each in function.arguments][2:]
    if len(words) != sum(map(words_of, arguments)):
        raise RuntimeError(f"Numba {numba.__version__} passes arrays in a way unknown to innet")
    _hide_all_but(module, (name, _DECREASE))
    foreign = _foreign(module)
    own = foreign <= _OWN_RUNTIME
    module.link_in(llvm.parse_assembly(str(_entry(name, words, sum(map(words_of, returned))))))
    if own:
        module.link_in(llvm.parse_assembly(str(_runtime())))
    _add_release(module)
    _hide_all_but(module, (ENTER, RELEASE))
    return MachineCode(
        growth=growth,
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
