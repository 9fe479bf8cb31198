"""One all-reduce of generated tensors, or of tensors from NumPy files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.config import AllReduceSettings
from innet.errors import InputError


def gradients(settings: AllReduceSettings) -> list[NDArray[Any]]:
    """The workers' tensors that ``settings`` ask for: from ``input``, or generated.

    Raises:
        InputError: a file that cannot be used.
    """
    if settings.input:
        return read(settings.input)
    rng = np.random.default_rng(settings.seed)
    return list(generate(settings.workers, settings.size, settings.density, rng))


def generate(
    workers: int, size: int, density: float, rng: np.random.Generator
) -> list[NDArray[np.float32]]:
    """Normally distributed tensors of shape (size,), zero except at ``density`` of the places.

    The places are drawn for each worker by itself; their number is the same for all.
    """
    filled = round(density * size)
    tensors = []
    for _ in range(workers):
        tensor = np.zeros(size, np.float32)
        values = rng.standard_normal(filled, np.float32)
        # A drawn zero would lower the density by chance.
        tensor[rng.choice(size, filled, replace=False)] = np.where(values == 0, 1, values)
        tensors.append(tensor)
    return tensors


def read(paths: Sequence[Path]) -> list[NDArray[Any]]:
    """One tensor per worker: every array of every file, in order.

    An .npy file holds the tensor of one worker, an .npz file those of as many as it has arrays.
    Their dtypes and shapes are those of the files; the collective checks them.

    Raises:
        InputError: a file that cannot be read, or holds no arrays of numbers.
    """
    tensors: list[NDArray[Any]] = []
    for path in paths:
        try:
            # Opened here: NumPy leaves a file open that it cannot read. Pickled objects could run
            # code; numbers need none.
            with path.open("rb") as stream:
                loaded = np.load(stream, allow_pickle=False)
                if isinstance(loaded, np.ndarray):
                    tensors.append(loaded)
                else:
                    tensors += [loaded[name] for name in loaded.files]
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
            raise InputError(
                f"{path} is no NumPy file of numbers; write it by numpy.savez or numpy.save."
            ) from None
    if not tensors:
        raise InputError(
            f"there is no array in {', '.join(map(str, paths))}; one per worker is needed."
        )
    return tensors
