"""The words that every preset sends, frozen: what a format change changes shows here first.

An entry may change by a deliberate change of format alone, which CHANGELOG.md then tells: workers
of the version before and after it cannot take part in one job. That a kernel became faster, or
code was moved, is no such reason.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from support.lockstep import all_reduce

from innet.codecs import PRESETS, build_codec

SIZE = 2000
WORKERS = 3

# By preset: SHA-256 of all that the workers send in two all-reduces, and the words that one worker
# sends in each of their rounds.
FROZEN: dict[str, tuple[str, list[list[int]]]] = {
    "adacomp": (
        "e5ecfef3bb59f12e6f5a4f5bfce46ec808ccddba7a9044087aaf9e94b5745156",
        [[3, 627], [3, 575]],
    ),
    "dense": (
        "7b11540539972ee527a1f33d8a2de8dfd006489481499a805c1276b2ac937577",
        [[1, 2000], [1, 2000]],
    ),
    "dgc": ("64e64222baccce00f57ced6e53610989ff6687427a7120e05f0175189c381387", [[3, 37], [3, 37]]),
    "exact": (
        "f146a967115b1d67be96385c96fb6bfd561b773f42990b271fa6e89e3ac01bf2",
        [[2, 2000], [2, 2000]],
    ),
    "gs-sgd": (
        "98ff6fdbe9a9d18d1117d25fa9d24776f2855beadab681db943d0333a58ed48c",
        [[1, 100, 1, 2], [1, 100, 1, 2]],
    ),
    "gtopk": (
        "62f1ff5faca5e9befc7a286b931fa87bce9414f78ecf20e23ecede29290f6751",
        [[3, 149], [3, 149]],
    ),
    "lhc": (
        "917feaa4b0c3295d89664a3edb8bfb5839043519a857e4f63ec7690a553215b6",
        [[3, 2000], [3, 2000]],
    ),
    "powersgd": (
        "e7622f81250e8a2886e07be77c725ebc3ea8a2fe3a66b7a783744e1c5f0d0f81",
        [[1, 90, 1, 90], [1, 90, 1, 90]],
    ),
    "qsgd": (
        "a6a64895747b293a42ac4cd0d478be8371d38bcd76fdfa4fe506d2c3562a9e7f",
        [[1, 667], [1, 667]],
    ),
    "scalecom": (
        "f6cf534021b414f3e3272e2461af196cb10cbe4d06e3d18f04bd4a75de1f2b54",
        [[20, 1, 20], [20, 1, 20]],
    ),
    "sidco-e": (
        "0e0c12c82a6e8a32ce040cb2f29fc447161b8c93f965e735a1d9ac9d608e57c7",
        [[3, 571], [3, 483]],
    ),
    "sidco-gp": (
        "043c1b2e6912455c9070ea9a533b13fbce107d98fdf247a9beb66ff880da0adf",
        [[3, 331], [3, 243]],
    ),
    "sidco-p": (
        "0cd288b2fdfd87dd13695964b5fcb6e91382a590a3438917956975768c353a2a",
        [[3, 267], [3, 153]],
    ),
    "sketched-sgd": (
        "5b77a115a71e5976047c610c329681dfd0090522f4db2f45c4bec154e3c27c0a",
        [[1, 100, 1, 8], [1, 100, 1, 8]],
    ),
    "thc": (
        "f3b1f0aeb83c0084e1035e32ffc577fc7aa658fe6c5a45fa837e086d3afd240e",
        [[1, 512], [1, 512]],
    ),
    "threshold": (
        "8017cb665ff52d86aaebd6a474c85cdaf7916d58c04c54f91a0fbcbbc34f7f18",
        [[3, 2000], [3, 2000]],
    ),
    "topk": (
        "d647dd2db2d4bf83ef9eaa65a83f94b8208924e5b286a8c60ccb1ba5ac1d4028",
        [[3, 149], [3, 149]],
    ),
}


def gradient(worker, step):
    """Of integers and powers of two, so that no library's random numbers or rounding matter: ties
    within and between workers, a fifth of zeros, as many of them negative as positive.
    """
    raw = np.random.PCG64(1000 * step + worker).random_raw(SIZE)
    mantissa = (raw & 0x3F).astype(np.float32) - 32
    exponent = ((raw >> np.uint64(8)) % 12).astype(np.int32)
    x = np.ldexp(mantissa, -exponent).astype(np.float32)
    x[(raw >> np.uint64(16)) % 10 == 0] = 0.0
    x[(raw >> np.uint64(16)) % 10 == 1] = -0.0
    return x


def words_of(preset):
    codecs = [build_codec(preset, seed=7, worker=w, kernels="naive") for w in range(WORKERS)]
    digest = hashlib.sha256()
    lengths = []

    def watch(segments):
        for own in segments:
            for each in own:
                digest.update(f"{each.operation.name} {each.words.size}\n".encode())
                digest.update(each.words.astype("<i4").tobytes())
        lengths[-1].append(sum(each.words.size for each in segments[0]))

    for step in range(2):
        lengths.append([])
        all_reduce(codecs, [gradient(worker, step) for worker in range(WORKERS)], watch)
    return digest.hexdigest(), lengths


@pytest.mark.parametrize("preset", PRESETS.names())
def test_the_words_are_those_of_before(preset):
    digest, lengths = words_of(preset)
    line = f'    "{preset}": ("{digest}", {lengths}),'
    assert preset in FROZEN, f"a new preset; add this line to FROZEN, in order:\n{line}"
    assert FROZEN[preset] == (digest, lengths), f"the words have changed; they are now\n{line}"


def test_no_entry_is_left_over():
    assert list(FROZEN) == sorted(FROZEN)
    assert set(FROZEN) <= set(PRESETS.names())


def test_the_gradients_are_what_they_are_to_be():
    x = gradient(0, 0)
    zeros = x[x == 0]
    assert zeros.size > SIZE / 10
    assert 0 < np.signbit(zeros).sum() < zeros.size
    assert np.unique(np.abs(x)).size < SIZE / 2  # ties
