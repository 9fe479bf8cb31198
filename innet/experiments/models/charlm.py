"""A character language model, and the English text that every Python has to learn from.

The text is that of the topics of Python's own help. The model: an embedding, one LSTM layer, and
a linear layer.
"""

from __future__ import annotations

import math
import string

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from innet.core.errors import MissingToolError
from innet.experiments.models.model import (
    Data,
    Model,
    Part,
    Recipe,
    Samples,
    check_framework,
    split,
)
from innet.records import PERPLEXITY
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, unflatten

functional = torch.nn.functional

# Independent of the Python's version, as the text is not, so that the model's size is fixed.
ALPHABET = "\n " + string.digits + string.ascii_letters + string.punctuation
LENGTH = 48  # characters predicted in each sample
_REST = ALPHABET.index("?")  # whatever is not in the alphabet
_SPLIT_SEED = 464970
_ONE_IN = 10  # samples are kept for testing


def load(part: Part = "test") -> Data:
    """Runs of LENGTH characters, and for each of them the one that follows it.

    The runs do not overlap; those to test by lie between those to train on, so that all subjects
    are in both. The help has passages and tables in several places, where they are depends on the
    Python's version: a run to test by that is one to train on as well is left out.

    Args:
        part: with "validation" only the samples to train on, split once more.

    Returns:
        Both of shape (n, LENGTH), int64 in 0 .. len(ALPHABET) - 1.

    Raises:
        MissingToolError: this Python comes without its help's topics.
    """
    return sequences(_text(), LENGTH, part, seed=_SPLIT_SEED, one_in=_ONE_IN)


def sequences(text: str, length: int, part: Part, *, seed: int, one_in: int) -> Data:
    """Runs of characters that do not overlap, and for each character the one that follows it.

    Args:
        text: what to cut into runs.
        length: characters of a run.
        part: see ``load``.
        seed: draws the runs to test by, one in ``one_in``. Those that are also among the runs to
            train on are left out.
        one_in: see ``seed``.
    """

    def split_apart(samples: Samples) -> Data:
        data = split(samples, seed, one_in)
        known = set(map(bytes, data.train.inputs))
        new = [row for row, run in enumerate(data.test.inputs) if bytes(run) not in known]
        return Data(train=data.train, test=data.test.take(np.array(new, np.int64)))

    codes = encode(text)
    count = (len(codes) - 1) // length
    inputs = codes[: count * length].reshape(count, length)
    targets = codes[1 : count * length + 1].reshape(count, length)
    data = split_apart(Samples(inputs, targets))
    return data if part == "test" else split_apart(data.train)


def encode(text: str) -> NDArray[np.int64]:
    """Each character's place in the alphabet; of what is not in it, that of a question mark."""
    positions = np.full(128, _REST, np.int64)  # of each ASCII character; the alphabet has no other
    positions[list(map(ord, ALPHABET))] = np.arange(len(ALPHABET))
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.where(characters < 128, positions[characters & 127], _REST)


def _text() -> str:
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415 - some systems leave it out
    except ImportError as error:
        raise MissingToolError(
            "pydoc_data.topics, a part of Python's standard library,",
            "text to learn",
            "Use a complete Python (Debian: apt install libpython3-stdlib), or another model.",
        ) from error
    return "\n".join(topics[name] for name in sorted(topics))


# ----------------------------------------------------------------------------
# The model.

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
        chance=float(len(ALPHABET)),
        long=Recipe(batch_size=16, learning_rate=2.0, momentum=0.9, epochs=24, decay="cosine"),
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
        at = unflatten(tensor(flat), SHAPES)
        loss = float(_loss(at, tensor(samples.inputs), tensor(samples.targets)))
    return math.exp(loss) if loss < 700 else math.inf


def _loss(at: Parameters, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    x = functional.embedding(inputs, at["embedding.weight"])
    parameters = {name.removeprefix("lstm."): at[name] for name in at if name.startswith("lstm.")}
    x, _ = torch.func.functional_call(_LSTM, parameters, x)
    scores = functional.linear(x, at["dense.weight"], at["dense.bias"])
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
