"""How Numba compiles the emitted function: only what such code needs.

Numba's own pipeline takes time and memory that grow with the square of a function's length, from
three causes that code as regular as this can do without:

* Static single assignment goes over the whole function once for every variable that is assigned
  twice. Emitted code gives each variable one type, and LLVM does the same work in a moment.
* The lifetime of every variable, temporaries included, is followed through every block, and that
  three times. Only references to arrays are counted, and those have few names.
* Closures, array expressions, literal unrolling and dead branches are looked for; there are none.

So 8,000 lines take a minute and 630 MB; with Numba's own pipeline they were given up after six
minutes and ten gigabytes. A number that a module defines passes through ``int64()`` before it is
assigned, or its literal type would be the variable's.
"""

from __future__ import annotations

from typing import Any

from numba.core import analysis
from numba.core import ir as numba_ir
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.typed_passes import NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, TranslateByteCode

from innet.core.numba_cache import undisturbed

__all__ = ["StraightPipeline"]

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
class Lowering(NativeLowering):
    """Numba's own, in which LLVM compiles; an interruption takes effect before or after."""

    _name = "undisturbed_lowering"

    def run_pass(self, state: Any) -> bool:
        return bool(undisturbed(super().run_pass)(state))


class StraightPipeline(CompilerBase):
    """For ``njit(pipeline_class=StraightPipeline)``: functions without closures, generators,
    exceptions and ``with``, in which each variable has one type.
    """

    def define_pipelines(self) -> list[Any]:
        passes = PassManager("straight")
        passes.add_pass(TranslateByteCode, "analyzing bytecode")
        passes.add_pass(FixupArgs, "fix up args")
        passes.add_pass(NopythonTypeInference, "nopython frontend")
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
