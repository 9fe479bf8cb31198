"""The tensors of a single all-reduce: generated, and read from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from innet.config import AllReduceSettings
from innet.errors import InputError
from innet.experiments.allreduce import generate, gradients, read


@pytest.mark.parametrize("size", [0, 1, 1001])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_density_is_met_exactly(size: int, density: float) -> None:
    tensors = generate(3, size, density, np.random.default_rng(0))
    assert [np.count_nonzero(each) for each in tensors] == [round(size * density)] * 3
    assert all(each.shape == (size,) and each.dtype == np.float32 for each in tensors)


def test_workers_differ_and_seeds_repeat() -> None:
    one, two = (gradients(AllReduceSettings(size=100, density=0.2, seed=5)) for _ in range(2))
    assert all(map(np.array_equal, one, two))
    assert not np.array_equal(one[0], one[1])
    assert not np.array_equal(one[0] != 0, one[1] != 0)


def test_every_array_of_every_file_is_a_worker(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", b=np.float32([1, 2]), a=np.float32([3, 4]))
    np.save(tmp_path / "one.npy", np.float64([5, 6]))
    settings = AllReduceSettings(input=(tmp_path / "two.npz", tmp_path / "one.npy"))
    found = gradients(settings)
    assert [each.tolist() for each in found] == [[1, 2], [3, 4], [5, 6]]
    assert found[2].dtype == np.float64  # not converted behind the person's back


def test_what_is_no_file_of_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "text.npz").write_text("1 2 3")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04torn")
    for name in ("objects.npy", "text.npz", "empty.npz", "torn.npz"):
        with pytest.raises(InputError, match=f"{name} is no NumPy file of numbers"):
            read([tmp_path / name])
    with pytest.raises(InputError, match=r"cannot read .*absent\.npz: No such file"):
        read([tmp_path / "absent.npz"])
    np.savez(tmp_path / "none.npz")
    with pytest.raises(InputError, match="there is no array in"):
        read([tmp_path / "none.npz"])
