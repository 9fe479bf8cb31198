"""Reduce-scatter, reduce, all-gather, broadcast and barrier of a ``Collective``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiers import tiered

from innet import Collective
from innet.core.errors import CompositionError, GradientError, InputError, StalledError
from innet.core.shards import Shards
from innet.network import Faults, Outage
from innet.protocol import Timing

FULL, BARE = 14 + 20 + 8 + 32 + 4 * 64, 14 + 20 + 8 + 32  # bytes of packets, with values or without


def gradients(workers, size, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size).astype(np.float32) for _ in range(workers)]


def collective(workers, **options):
    return Collective(**{"workers": workers, "program": "collectives"} | options)


# ------------------------------------------------------------------ shards


@given(
    elements=st.integers(0, 50),
    owners=st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
    limbs=st.integers(1, 3),
)
def test_shards_cover_a_vector(elements, owners, limbs):
    shards = Shards.of(elements, owners)
    sizes = [shards.part(owner).stop - shards.part(owner).start for owner in owners]
    assert sum(sizes) == shards.elements == elements
    assert max(sizes) - min(sizes) <= 1
    assert sorted(sizes, reverse=True) == sizes
    whose = np.full(limbs * elements, -1)
    for owner, piece in shards.pieces(limbs):
        assert (whose[piece] == -1).all()
        whose[piece] = owner
    one = np.repeat(owners, sizes)
    np.testing.assert_array_equal(whose, np.tile(one, limbs))
    # Of some of the integers only.
    indices = np.flatnonzero(np.arange(limbs * elements) % 3 == 1).astype(np.int32)
    for owner, piece in shards.pieces(limbs, indices):
        assert (whose[indices[piece]] == owner).all()


@pytest.mark.parametrize("sizes", [[1, 2], [5, -1, 6], [3, 3, 3], [1.5, 2, 6.5]])
def test_wrong_sizes_of_shards(sizes):
    with pytest.raises(InputError, match=r"size of a shard|shards have"):
        Shards.of(10, [0, 1, 2], sizes)


# ------------------------------------------------------------------ sums


CODECS = ["dense", "exact", "qsgd", "scalecom", "signsgd", "randomk"]


@pytest.mark.parametrize("codec", CODECS)
def test_parts_are_those_of_the_all_reduce(codec):
    given_, sizes = gradients(3, 500), [300, 0, 200]
    total, _ = Collective(workers=3, codec=codec, program="slots").all_reduce(given_)
    parts, report = collective(3, codec=codec).reduce_scatter(given_, sizes=sizes)
    assert [part.size for part in parts] == sizes
    np.testing.assert_array_equal(np.concatenate(parts), total)
    assert report.exact
    assert report.details["collective"] == "reduce-scatter"


def test_codecs_keep_what_was_not_sent():
    """Several reduce-scatters have the bits of as many all-reduces, with error feedback."""
    one, other = collective(4, codec="scalecom"), Collective(workers=4, codec="scalecom")
    for step in range(3):
        given_ = gradients(4, 1000, step)
        total, _ = other.all_reduce(given_)
        parts, _ = one.reduce_scatter(given_)
        np.testing.assert_array_equal(np.concatenate(parts), total)


@pytest.mark.parametrize(
    ("workers", "size"), tiered([(1, 10), (5, 3), (7, 1000)], [(5, 3)], "other numbers of workers")
)
def test_all_numbers_of_workers(workers, size):
    """Also one, and more than there are elements."""
    given_ = gradients(workers, size)
    summing = collective(workers, codec="exact", verify=True)
    parts, report = summing.reduce_scatter(given_)
    truth = np.sum(np.array(given_, np.float64), axis=0).astype(np.float32)
    np.testing.assert_array_equal(np.concatenate(parts), truth)
    assert report.exact
    total, report = summing.reduce(given_, root=workers - 1)
    np.testing.assert_array_equal(total, truth)
    assert report.exact
    gathered, report = summing.all_gather(parts)
    np.testing.assert_array_equal(gathered, truth)
    assert report.exact


def test_gradients_keep_dtype_and_shape():
    given_ = [each.reshape(4, 5).astype(np.float16) for each in gradients(2, 20)]
    total, _ = collective(2).reduce(given_, root=1)
    assert (total.shape, total.dtype) == ((4, 5), np.float16)
    parts, _ = collective(2).reduce_scatter(given_)
    assert [(part.shape, part.dtype) for part in parts] == [((10,), np.float16)] * 2


@pytest.mark.parametrize(
    ("codec", "reason"),
    [
        ("lhc", "carrier 'lhc' sends words that are not those of single elements"),
        ("thc", "quantizer 'thc' mixes elements"),
        ("sketched-sgd", "selector 'sketched-sgd' decides by the whole sum"),
        ("powersgd", "selector 'powersgd' computes elements from coefficients"),
        ({"quantizer": "optimistic"}, "quantizer 'optimistic' repeats sums"),
        (
            {"selector": "topk", "carrier": "dense", "error_feedback": "ef21"},
            "error_feedback 'ef21' needs the whole",
        ),
        ({"layers": {"0": "dense", "*": "exact"}}, "codec by layer has parts"),
    ],
)
def test_codecs_whose_sums_have_no_parts(codec, reason):
    summing = collective(2, codec=codec, layers=[(5, 20), (50,)])
    with pytest.raises(CompositionError, match=reason):
        summing.reduce_scatter(gradients(2, 150))


def test_what_is_no_gradient_or_size_is_named():
    summing = collective(2)
    with pytest.raises(GradientError, match=r"the gradient of worker 0 is .*list"):
        summing.reduce_scatter([[1.0, 2.0]] * 2)  # type: ignore[list-item]
    with pytest.raises(InputError, match="the sizes are 5; give a list"):
        summing.reduce_scatter(gradients(2, 10), sizes=5)  # type: ignore[arg-type]


def test_programs_for_trees_are_told_where_one_is():
    with pytest.raises(InputError, match="with program='collectives-tree'"):
        Collective(workers=40).barrier()
    with pytest.raises(InputError, match="program for larger jobs is collectives-tree"):
        collective(40)


def test_other_programs_are_refused():
    summing = Collective(workers=2, program="slots")
    for call in (
        lambda: summing.reduce_scatter(gradients(2, 10)),
        lambda: summing.all_gather(gradients(2, 10)),
        summing.barrier,
    ):
        with pytest.raises(InputError, match=r"slots-64 knows no .*; make the Collective"):
            call()


# ------------------------------------------------------------------ bytes as they are


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.complex64, np.bool_])
def test_arrays_of_any_dtype_arrive_bit_for_bit(dtype):
    rng = np.random.default_rng(1)
    shards = [rng.integers(0, 2, size).astype(dtype) for size in (7, 0, 300)]
    gathering = collective(3)
    gathered, report = gathering.all_gather(shards)
    assert gathered.dtype == dtype
    np.testing.assert_array_equal(gathered, np.concatenate(shards))
    assert report.exact
    assert (report.codec, report.elements) == ("none", 307)
    array = rng.integers(0, 2, (3, 5)).astype(dtype)
    received, _ = gathering.broadcast(array, root=2)
    assert (received.shape, received.dtype) == (array.shape, dtype)
    np.testing.assert_array_equal(received, array)


def test_tensors_of_torch_arrive_whatever_their_form():
    torch = pytest.importorskip("torch")
    gathering = collective(2)
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    for tensor in (numbers.conj(), numbers.imag, torch.ones(1).expand(3), torch.tensor(7)):
        received, _ = gathering.broadcast(tensor)
        assert received.dtype == tensor.dtype
        assert torch.equal(received, tensor)
    both, _ = gathering.all_gather([torch.ones(2), np.zeros(1, np.float32)])
    assert both.tolist() == [1, 1, 0]
    with pytest.raises(InputError, match=r"worker 0 has is a sparse tensor; pass tensor\.to_dense"):
        gathering.broadcast(torch.eye(2).to_sparse())


def test_not_a_number_arrives_as_it_is():
    odd = np.array([0x7FC0_1234, 0xFFFF_FFFF, 0x8000_0000, 1], np.uint32).view(np.float32)
    gathered, _ = collective(2).all_gather([odd, odd[:1]])
    np.testing.assert_array_equal(gathered.view(np.uint32), odd.view(np.uint32)[[0, 1, 2, 3, 0]])


def test_what_cannot_be_gathered():
    gathering = collective(2)
    with pytest.raises(InputError, match=r"worker 1 is int32, that of worker 0 int64; convert"):
        gathering.all_gather([np.zeros(2, np.int64), np.zeros(2, np.int32)])
    with pytest.raises(InputError, match="what worker 0 has is of type list"):
        gathering.all_gather([[1], [2]])
    with pytest.raises(GradientError, match="of type int; pass a list"):
        gathering.all_gather(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no worker 2"):
        gathering.broadcast(np.zeros(1), root=2)


# ------------------------------------------------------------------ packets


@pytest.mark.parametrize("workers", tiered([2, 4, 8], [4], "other numbers of workers"))
def test_bytes_of_each_worker(workers):
    """What collectives with owners save: values travel once, where they are needed."""
    chunks = 5 * workers  # of which each worker owns five
    size = 64 * chunks
    summing = collective(workers, codec="dense")
    parts, report = summing.reduce_scatter(gradients(workers, size))
    handshake = 2 * FULL  # one packet for each operation
    own = chunks // workers
    assert report.bytes_sent - handshake in {
        (chunks - own) * FULL + own * BARE + extra for extra in (0, -FULL)
    }
    _, report = summing.all_gather(parts)
    assert report.bytes_sent == own * FULL + (chunks - own) * BARE
    _, report = summing.broadcast(np.zeros(size, np.float32))
    counts = [end.counters for end in summing.network.workers]
    assert report.bytes_sent == chunks * FULL  # of the root
    assert report.packets_sent == workers * chunks
    report = summing.barrier()
    assert (report.bytes_sent, report.packets_sent) == (BARE, workers)
    assert not any(each.retransmissions for each in counts)


def test_a_barrier_has_no_elements():
    report = collective(3).barrier()
    assert (report.elements, report.codec, report.exact) == (0, "none", None)


# ------------------------------------------------------------------ networks that lose and stall


def test_over_a_bad_network():
    faults = Faults(loss=0.1, duplicate=0.05, reorder=0.1, corrupt=0.02)
    summing = collective(3, codec="exact", faults=faults, seed=5)
    given_ = gradients(3, 700)
    parts, report = summing.reduce_scatter(given_)
    truth = np.sum(np.array(given_, np.float64), axis=0).astype(np.float32)
    np.testing.assert_array_equal(np.concatenate(parts), truth)
    assert report.exact
    assert report.retransmissions
    gathered, _ = summing.all_gather(parts)
    np.testing.assert_array_equal(gathered, truth)


def test_a_dead_owner_is_named():
    faults = Faults(outages=(Outage(0.0, float("inf"), (2,)),))  # port 2 is worker 1
    gathering = collective(3, faults=faults, timing=Timing(give_up=0.5))
    with pytest.raises(StalledError, match="worker 1"):
        gathering.all_gather(gradients(3, 100))


def test_the_next_one_begins_another_epoch():
    faults = Faults(outages=(Outage(0.0, 1.0, (2,)),))
    gathering = collective(3, faults=faults, timing=Timing(give_up=0.5))
    shards = gradients(3, 100)
    for _ in range(2):
        with pytest.raises(StalledError):
            gathering.all_gather(shards)
    gathered, _ = gathering.all_gather(shards)
    np.testing.assert_array_equal(gathered, np.concatenate(shards))


def test_who_is_late_is_left_out_of_a_reduce_scatter():
    faults = Faults(outages=(Outage(0.0, float("inf"), (2,)),))
    summing = collective(3, codec="exact", faults=faults, timing=Timing(partial_after=0.05))
    given_ = gradients(3, 90)
    parts, report = summing.reduce_scatter(given_)
    assert report.details["without"] == [1]
    assert report.exact is None  # of worker 1's part nobody has the sum
    truth = (given_[0].astype(np.float64) + given_[2]).astype(np.float32)
    np.testing.assert_array_equal(np.concatenate(parts), np.delete(truth, slice(30, 60)))
    # Those who are left go on.
    gathered, _ = summing.all_gather(parts)
    assert gathered.size == 60


def test_late_workers_end_an_all_gather():
    faults = Faults(outages=(Outage(0.0, float("inf"), (2,)),))
    gathering = collective(3, faults=faults, timing=Timing(partial_after=0.05))
    with pytest.raises(StalledError, match="this all-gather lacks workers 1, who were late"):
        gathering.all_gather(gradients(3, 90))
