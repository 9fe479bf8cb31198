# %% [markdown]
# # A codec of your own
#
# You write a new rule for which elements of a gradient are sent. You use it in all-reduces, with error feedback,
# over a lossy network, and in a training. innet itself is not changed.
#
# A codec has four parts: a selector (which elements), a quantizer (as which integers), a carrier (in which
# words) and an error feedback (what happens to the rest). You replace one of them and keep the others.
#
# ## The selector
#
# It sends what is at least a multiple of the mean magnitude, and the largest element in any case.

# %%
from typing import Annotated

import numpy as np
from pydantic import Field

import innet
from innet.codecs import SELECTORS
from innet.codecs.parts import (
    INCLUDES_LARGEST,
    LEAVES_RESIDUAL,
    Capabilities,
    Floats,
    Ints,
    Selector,
)
from innet.core.settings import Settings


class AboveMeanSettings(Settings):
    factor: Annotated[float, Field(gt=0)] = 3.0


class AboveMean(Selector[AboveMeanSettings]):
    """Elements of at least ``factor`` times the mean magnitude."""

    name = "above-mean"
    settings = AboveMeanSettings
    capabilities = Capabilities(
        provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}),
    )

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        magnitude = np.abs(x)
        mean = magnitude.sum(dtype=np.float64) / max(x.size, 1)
        least = min(self.parameters.factor * mean, magnitude.max(initial=0))
        indices = np.flatnonzero(magnitude >= least).astype(np.int32)
        return indices, x[indices]


SELECTORS.register("above-mean", AboveMean)

# %% [markdown]
# `capabilities` says what other parts may rely on: here, that a residual is left for error feedback, and that
# the largest element is among those sent. A combination that cannot work is refused with the reason.
#
# ## Use it
#
# It has a name now, so it is written like every other part. `topk` is a preset; `selector=` replaces its selector.

# %%
rng = np.random.default_rng(0)
gradients = [rng.laplace(size=20_000).astype(np.float32) for _ in range(4)]

for factor in (2, 4, 6):
    codec = f"topk:selector=above-mean,factor={factor}"
    total, report = innet.all_reduce(gradients, codec=codec)
    print(
        f"factor {factor}: {report.selected:6} of 80,000 elements, {report.compression:5.1f} x fewer bytes"
    )
    assert report.exact

# %% [markdown]
# A mistake is explained:

# %%
from innet.core.errors import InnetError

try:
    innet.all_reduce(gradients, codec="topk:selector=above-mean,factor=-1")
except InnetError as error:
    print(error)

# %% [markdown]
# ## Does the rest arrive?
#
# `topk` has the error feedback `residual`: it adds the elements that were not sent to the next gradient. To see
# whether they arrive, send the same gradient 30 times, and compare the mean of the sums with the true sum. Do the
# same with `topk`'s own selector, which sends the largest 2 % each time.

# %%
true = np.sum(gradients, axis=0, dtype=np.float64)
errors = {}
for codec in ("topk:selector=above-mean,factor=4", "topk:ratio=0.02"):
    collective = innet.Collective(workers=4, codec=codec)
    received = np.zeros_like(true)
    errors[codec] = []
    for step in range(1, 31):
        total, report = collective.all_reduce(gradients)
        received += total
        errors[codec].append(np.linalg.norm(received / step - true) / np.linalg.norm(true))
    first, last = errors[codec][0], errors[codec][-1]
    print(f"{codec:34} relative error {first:.2f} after one step, {last:.2f} after {step}")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.6))
for (codec, error), color in zip(errors.items(), ("#d9822b", "#3f7cbf"), strict=True):
    axes.plot(range(1, 31), error, color=color, label=codec)
axes.set(xlabel="all-reduces", ylabel="relative error", ylim=0)
axes.legend()
axes.set_title("A fixed number of elements catches up, this threshold does not")

# %% [markdown]
# With `topk` the error falls: some elements must be sent each time, so every element has its turn. With the new rule
# it does not fall. Elements that wait grow with every step, but so does the mean magnitude. The threshold stays
# above most of them, so they are never sent. A rule with a threshold needs a least number of elements, too.
#
# This test repeats one gradient. In training, gradients change; the next section tries the rule there.

# %% [markdown]
# ## Does a model learn with it?
#
# `experiments.train` trains one model with plain float32 sums and with each codec, from the same weights and on the
# same batches.

# %%
from innet import experiments

record = experiments.train("digits-cnn", ["topk:selector=above-mean,factor=4"], epochs=1, workers=2)
for run in record.runs:
    print(f"{run.title:40} {run.final_score:.1%} {run.total('bytes_sent'):>10,} bytes")

# %% [markdown]
# ## Give it a name in commands
#
# Put the class into a package of yours, and name it in that package's `pyproject.toml`:
#
# ```toml
# [project.entry-points."innet.selectors"]
# above-mean = "mypackage.parts:AboveMean"
# ```
#
# Then `innet train --codec topk:selector=above-mean` works, and so does `pytest tests/contract -k above-mean` in a
# checkout of innet: it tests shapes, determinism, exactness, ranges and saved state.
#
# Quantizers, carriers and error feedback of your own: [extending innet](../extending.md).
