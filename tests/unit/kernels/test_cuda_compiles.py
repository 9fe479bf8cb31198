"""Every CUDA kernel compiles, for an H200 where there is no GPU: it takes the compiler alone."""

from __future__ import annotations

import importlib
import pkgutil
from types import SimpleNamespace

import pytest

cuda = pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
from numba import config, types  # noqa: E402 - what follows needs numba-cuda
from numba.cuda import dispatcher  # noqa: E402

if config.ENABLE_CUDASIM:
    pytest.skip("the simulator does not compile", allow_module_level=True)
TARGET = cuda.get_current_device().compute_capability if cuda.is_available() else (9, 0)
try:
    cuda.compile_ptx(lambda: None, (), cc=TARGET)
except (ImportError, OSError, RuntimeError) as error:
    pytest.skip(f"the compiler of innet[cuda] is not installed: {error}", allow_module_level=True)

import innet.kernels.cuda as package  # noqa: E402

TYPES = {
    "i": types.int32[::1],
    "u": types.uint32[::1],
    "f": types.float32[::1],
    "n": types.int64,
    "d": types.float64,
    "g": types.float32,
    "D": types.float64[::1],
    "U": types.uint64[::1],
    "L": types.int64[::1],
    "s": types.uint64,
    "h": types.UniTuple(types.uint64, 5),
}
KERNELS = {
    "bitmap._gather_sparse": "iiii",
    "bitmap._list": "unnii",
    "bitmap._nonzero_bitmap_dense": "iu",
    "bitmap._nonzero_bitmap_sparse": "iiu",
    "bitmap._popcount": "ui",
    "bitmap._scatter": "iii",
    "bitmap._tally": "unni",
    "blocks._flag_blocks": "innu",
    "blocks._gather": "iini",
    "blocks._scatter": "iini",
    "bloom._fill": "insu",
    "bloom._members": "unnsu",
    "chunks._chunk_argmax": "innni",
    "chunks._flag": "ffdfnu",
    "chunks._look_up": "fif",
    "count_sketch._add_up": "fdUnnL",
    "count_sketch._estimate": "iUnnf",
    "count_sketch._to_floats": "Ldf",
    "device._fill": "in",
    "device._scan": "i",
    "fixed_point._dequantize": "idf",
    "fixed_point._quantize": "fdi",
    "fixed_point._quantize_stochastic": "fdsi",
    "formats._block_magnitudes": "ini",
    "formats._dequantize_blocks": "iDnf",
    "formats._quantize": "fffnnnnnsi",
    "formats._round": "ffnnndnsf",
    "hadamard._block_squares": "fnD",
    "hadamard._hadamard": "fDnsi",
    "hadamard._hadamard_inverse": "iDnsf",
    "hadamard._quantize_to_table": "iDidnsi",
    "lhc._copy_below": "unu",
    "lhc._encode_dense": "ihui",
    "lhc._encode_sparse": "iihui",
    "lhc._list_alone": "iii",
    "lhc._next_round": "i",
    "lhc._occupy": "unhii",
    "lhc._read_off": "iiiiihiu",
    "lhc._take_out": "iiiiihi",
    "lhc._unblock": "iuiiiiihiu",
    "limbs._join_long": "innddif",
    "limbs._join_short": "inndf",
    "limbs._lowest_exponent": "ii",
    "limbs._split": "innni",
    "low_rank._factor_product": "ffnnf",
    "low_rank._project_columns": "ffnnD",
    "low_rank._project_rows": "ffnnD",
    "packing._pack": "inni",
    "packing._pack_bits": "ini",
    "packing._unpack": "inni",
    "packing._unpack_bits": "ini",
    "residual._add_scaled": "ffgf",
    "residual._send": "ffgifff",
    "statistics._abs_product": "iDL",
    "statistics._absmax_nnz": "ii",
    "statistics._absmax_nnz_bitmap": "iiu",
    "statistics._absmin_count": "ini",
    "statistics._moments": "fddDD",
    "topk._choose_digit": "nii",
    "topk._clear": "fi",
    "topk._histogram": "innii",
    "topk._tally": "iniii",
    "topk._write": "finiiiif",
}


@pytest.fixture(autouse=True)
def target(monkeypatch):
    """Functions that kernels call are compiled for the GPU that is there; so let there be one."""
    if not cuda.is_available():
        pretended = SimpleNamespace(compute_capability=TARGET)
        monkeypatch.setattr(dispatcher, "get_current_device", lambda: pretended)


def dispatchers():
    for each in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{each.name}")
        for name, value in vars(module).items():
            if hasattr(value, "py_func") and value.py_func.__module__ == module.__name__:
                yield f"{each.name}.{name}", value


def test_the_table_names_every_kernel():
    found = {name for name, value in dispatchers() if not value.targetoptions.get("device")}
    assert found == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_compiles(name):
    module, function = name.split(".")
    kernel = getattr(importlib.import_module(f"{package.__name__}.{module}"), function)
    signature = tuple(TYPES[letter] for letter in KERNELS[name])
    ptx, _ = cuda.compile_ptx(kernel.py_func, signature, cc=TARGET)
    assert f".target sm_{TARGET[0]}{TARGET[1]}" in ptx
    # What would make results differ from those of the other kernels: a product and a sum rounded
    # once instead of twice, subnormals taken for zero, division that is not rounded correctly.
    assert "fma." not in ptx
    assert ".ftz" not in ptx
    assert ".approx" not in ptx
    # A warning sign that integers of different signs were mixed: Numba computes such in float64.
    if not {"f", "d", "D"} & set(KERNELS[name]):
        assert ".f64" not in ptx
