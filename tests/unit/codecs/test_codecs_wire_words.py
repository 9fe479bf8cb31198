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
        "1da89a7adc95ede48c6a12e43763c8c45b4f9fe5b83af90651b2306e539842b1",
        [[5, 627], [5, 575]],
    ),
    "bf16": (
        "b8bf44f8c7dc1a5a1c9aaee427448ee1a05ed0eeba4ee482ae029e05e1b6080f",
        [[65, 1000], [65, 1000]],
    ),
    "dense": (
        "055cd11ac9eeea57ecb7ce183483a092f4cc1be38f8cf5dc7cfbae40fa3c1112",
        [[3, 2000], [3, 2000]],
    ),
    "dgc": ("637f781c870f5848490a575927bbed74f6d220e35ac008ee3a8f959530479520", [[5, 37], [5, 37]]),
    "ef21": (
        "8080db118513dd86efc4cba567e7132be905084be401cfcadaaaee89c00c1ce3",
        [[5, 149], [5, 149]],
    ),
    "exact": (
        "6cd93beeb539bc010fea2d1100cd8bfea410d513f461458c1c83a97a9465e7ab",
        [[4, 2000], [4, 2000]],
    ),
    "fp16": (
        "4137351f1a3561d954492290161d66d1e08fb00add962951fb78f0129e4d2e52",
        [[65, 1000], [65, 1000]],
    ),
    "fp8-e4m3": (
        "66d0b739f53f65b4d7be559759e5ce59f946deb804217dbc8a374b14881c3053",
        [[3, 667], [3, 667]],
    ),
    "fp8-e5m2": (
        "da8e9e7831042feffaecf7c556fd2ffa31d12bf4ac57a2f9582dd38ae5b84b7c",
        [[3, 667], [3, 667]],
    ),
    "fpisa": (
        "cf2976a0be764652d7fcd267808ccef0eb38f857cc8a9e2c9033da540eafdebd",
        [[3, 2000], [3, 2000]],
    ),
    "gaussiank": (
        "31dee27f32a13c9b698cfbf66f2e531da791b5e0d8e96423ce64dd38aa2af7c4",
        [[5, 48], [5, 142]],
    ),
    "gs-sgd": (
        "55b6dc126a0de56133eaa8e1f43066a77aa06202529722e45b11761311ade90b",
        [[1, 100, 3, 2], [1, 100, 3, 2]],
    ),
    "gtopk": (
        "23d16040de267ccb265c3782c6c5f3f35fe84dd81d2e9d3e232916fd417dce56",
        [[5, 149], [5, 149]],
    ),
    "int8": (
        "0102e98a94b2ba2b67fc67330b05caadde11d5bf1ebaf67c322294ec49aa391f",
        [[3, 667], [3, 667]],
    ),
    "lhc": (
        "d6e318e7e5cbd121416e353ae9520d3788d12ed16a33420642a7d5b5a51693ba",
        [[5, 2000], [5, 2000]],
    ),
    "lhc-exact": (
        "a4cc6012d14deb63e607f6ffe534957125d692c653f35f902bdc5b0b5dd36c30",
        [[69, 2000], [69, 2000]],
    ),
    "mxfp4": (
        "431eac2f8b80da586c423acb895dff0ef12f48c6f2946285ed6f9246aa2ab8a6",
        [[65, 400], [65, 400]],
    ),
    "mxfp6-e2m3": (
        "b5646528171194b7dfb680e2c14e87c092ae0564075478867e72afdd9a5bea6a",
        [[65, 500], [65, 500]],
    ),
    "mxfp6-e3m2": (
        "09f96634bdf726995f03419d7321f4d5a3f3eae89c518f2079aa897ea49c7c19",
        [[65, 500], [65, 500]],
    ),
    "mxfp8-e4m3": (
        "518209e186b2326205ab2cb5db349946e3892acb966935c193be6c9d17a81799",
        [[65, 667], [65, 667]],
    ),
    "mxfp8-e5m2": (
        "9507d5a81d3c7207119599ae860e58040dd9f3327d53eb0948761feef3ec460e",
        [[65, 667], [65, 667]],
    ),
    "mxint8": (
        "cb56235152f7b09c57aa5302db9952055c7eb6a5c11c49829c0457f34ae3a037",
        [[65, 667], [65, 667]],
    ),
    "powersgd": (
        "428fda395d7683623d0efa65e7bc724eda47351f9c0697e92f4f4fda2a0b99e2",
        [[1, 90, 3, 90], [1, 90, 3, 90]],
    ),
    "qsgd": (
        "b7c7e9118928eb30de348b6a09b2d4121ee955c4dbfc4f539ab0f1af7c36db83",
        [[3, 667], [3, 667]],
    ),
    "randomk": (
        "3d49b896587e5327525984b1bb550519eaffd4619255f3353ceb84b7910ba92c",
        [[3, 20], [3, 20]],
    ),
    "redsync": (
        "795d1a8000ef6115e16869c7725eb57ea66883c27add67ced49eb3d24b18c5bf",
        [[5, 214], [5, 166]],
    ),
    "scalecom": (
        "d604473b319037dcbcff94e0208bd6fd8976abbbdb94ac497b842a624ac4b13e",
        [[6, 3, 20], [6, 3, 20]],
    ),
    "sidco-e": (
        "116dbc16e80b0a82afd4d59f6cd27d0c35f84415ad446c2f4078c198c20cb987",
        [[5, 571], [5, 483]],
    ),
    "sidco-gp": (
        "46a2ec501a3eb5a43cb6c467404d273e4094bf50387d3d398e137fadab6f7aa3",
        [[5, 267], [5, 153]],
    ),
    "sidco-p": (
        "33a4599c881f78986a452b649b7adafa510adb482b3eacff295781aa8c686cb8",
        [[5, 331], [5, 243]],
    ),
    "signsgd": (
        "dcc491a8d5666d4240af1f860fb720af022bfa5aef1c973bb30a00806492244c",
        [[3, 200], [3, 200]],
    ),
    "sketched-sgd": (
        "dd91073ef8c1f64ff4a91d1d6b01c283b834b35cc16a6230f37d1d884d06452c",
        [[1, 100, 3, 8], [1, 100, 3, 8]],
    ),
    "thc": (
        "93ff73488dd665b58b1334ea19f1fdbf5b594a5f92c1e8de79eed847d4f140c0",
        [[3, 512], [3, 512]],
    ),
    "threshold": (
        "2c1566a1be777c7ce42cd1f3460c882d273fc3d00a41185380aa5a8e9186363c",
        [[5, 2000], [5, 2000]],
    ),
    "topk": (
        "e0beebcde378350e8cb1e8b4b253c786c0f71aae6b87fe7e702c4ee400d28302",
        [[5, 149], [5, 149]],
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
    codecs = [build_codec(preset, seed=7, worker=w, kernels="reference") for w in range(WORKERS)]
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
