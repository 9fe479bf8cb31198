"""The tensors of a single all-reduce: generated, and read from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from innet.core.errors import InputError
from innet.core.settings import AllReduceSettings
from innet.scenarios.allreduce import generate, gradients, read


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
    # A header that ends within a bracket: NumPy hands on what Python's tokenizer raises.
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,".ljust(117) + b"\n"
    (tmp_path / "bracket.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    )
    with pytest.raises(InputError, match=r"bracket\.npy is no NumPy file of numbers"):
        read([tmp_path / "bracket.npy"])
    with pytest.raises(InputError, match=r"cannot read .*absent\.npz: No such file"):
        read([tmp_path / "absent.npz"])
    np.savez(tmp_path / "none.npz")
    with pytest.raises(InputError, match="there is no array in"):
        read([tmp_path / "none.npz"])


def test_a_file_that_claims_more_than_the_memory_holds(tmp_path: Path) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (2**58,)}
    with (tmp_path / "huge.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))
    with pytest.raises(InputError, match=r"no room for what .*huge\.npy says it holds.*damaged"):
        read([tmp_path / "huge.npy"])


def test_tensors_that_do_not_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("innet.scenarios.allreduce.generate", full)
    with pytest.raises(InputError, match="1073741824 elements for each of 2 workers"):
        gradients(AllReduceSettings(size=2**30, workers=2))


def test_tensors_larger_than_the_memory_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would end the process, or another one, before NumPy is refused anything."""
    pages = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("innet.scenarios.allreduce.os.sysconf", pages.__getitem__)
    with pytest.raises(InputError, match="512001 elements for each of 2 workers do not fit"):
        gradients(AllReduceSettings(size=512_001, workers=2))
    assert len(gradients(AllReduceSettings(size=512_000, workers=2))) == 2


def test_workers_that_contradict_the_input_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.npz"
    np.savez(path, np.float32([1, 2]), np.float32([3, 4]))
    with pytest.raises(InputError, match="workers = 5, but the input holds 2 arrays"):
        gradients(AllReduceSettings(input=(path,), workers=5))
    with pytest.raises(InputError, match="workers = 4, but"):  # the default, when it is said
        gradients(AllReduceSettings(input=(path,), workers=4))
    assert len(gradients(AllReduceSettings(input=(path,), workers=2))) == 2
    assert len(gradients(AllReduceSettings(input=(path,)))) == 2


def test_where_every_place_is_filled_none_is_drawn() -> None:
    rng = np.random.default_rng(7)
    expected = np.random.default_rng(7).standard_normal(50, np.float32)
    (tensor,) = generate(1, 50, 1.0, rng)
    np.testing.assert_array_equal(tensor, expected)
    # Sparse tensors are those that this seed always gave.
    (sparse,) = generate(1, 8, 0.25, np.random.default_rng(3))
    reference = np.random.default_rng(3)
    values = reference.standard_normal(2, np.float32)
    same = np.zeros(8, np.float32)
    same[reference.choice(8, 2, replace=False)] = values
    np.testing.assert_array_equal(sparse, same)
