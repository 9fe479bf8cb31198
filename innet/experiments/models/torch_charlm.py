"""A character language model: an embedding, one LSTM layer, and a linear layer."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from innet.experiments.models.model import Model, Recipe, check_framework
from innet.experiments.models.text import ALPHABET, load
from innet.experiments.samples import Samples
from innet.records import PERPLEXITY
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, views

functional = torch.nn.functional

_CHARACTERS, _EMBEDDING, _HIDDEN = len(ALPHABET), 32, 128
_LSTM = torch.nn.LSTM(_EMBEDDING, _HIDDEN, batch_first=True)  # its parameters are never used
SHAPES = {
    "embedding.weight": (_CHARACTERS, _EMBEDDING),
    **{f"lstm.{name}": tuple(part.shape) for name, part in _LSTM.named_parameters()},
    "dense.weight": (_CHARACTERS, _HIDDEN),
    "dense.bias": (_CHARACTERS,),
}


def model(framework: str | None = None) -> Model:
    """98,400 parameters; ``framework`` can be nothing but torch."""
    check_framework("charlm", framework, "torch")
    return Model(
        name="charlm",
        title="an LSTM learns English, by characters",
        shapes=SHAPES,
        metric=PERPLEXITY,
        recipe=Recipe(batch_size=16, learning_rate=2.0, momentum=0.9, epochs=2),
        load=load,
        initial=initial,
        gradient=gradient_of(_loss, SHAPES),
        evaluate=perplexity,
    )


def initial(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Embeddings normal, all else uniform within ± 1 / √units, as PyTorch has them."""
    bound = 1 / math.sqrt(_HIDDEN)
    parts = [
        rng.standard_normal(shape)
        if name.startswith("embedding")
        else rng.uniform(-bound, bound, shape)
        for name, shape in SHAPES.items()
    ]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def perplexity(flat: npt.NDArray[np.float32], samples: Samples) -> float:
    """The exponential of a character's mean cross-entropy; infinite where float64 ends."""
    with torch.no_grad():
        at = views(tensor(flat), SHAPES)
        loss = float(_loss(at, tensor(samples.inputs), tensor(samples.targets)))
    return math.exp(loss) if loss < 700 else math.inf


def _loss(at: Parameters, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    x = functional.embedding(inputs, at["embedding.weight"])
    own = {name.removeprefix("lstm."): at[name] for name in at if name.startswith("lstm.")}
    x, _ = torch.func.functional_call(_LSTM, own, x)
    scores = functional.linear(x, at["dense.weight"], at["dense.bias"])
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
