"""A small GPT that learns PyTorch's documentation, by characters.

The text is in every PyTorch that can train the model: the long strings of some of its modules,
which are their documentation. It depends on PyTorch's version, which ``constraints.txt`` has.

The model is GPT-2's (Radford et al., 2019) with normalization before each part: embeddings of
characters and positions, four blocks of causal self-attention and a network of four times the
width, and an output layer. There is no dropout: a gradient must follow from its batch alone.
"""

from __future__ import annotations

import ast
import math
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from innet.core.errors import MissingToolError
from innet.experiments.models.charlm import ALPHABET, sequences
from innet.experiments.models.model import (
    Data,
    Model,
    Part,
    Recipe,
    Samples,
    check_framework,
)
from innet.records import PERPLEXITY
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, unflatten

functional = torch.nn.functional

LENGTH = 64  # characters predicted in each sample
FILES = ("_torch_docs.py", "_tensor_docs.py", "functional.py", "nn/functional.py")
FOLDERS = ("nn/modules", "distributions", "linalg", "fft", "special", "optim")
_LEAST = 200  # characters of a string that is taken for documentation
_SPLIT_SEED = 2019
_ONE_IN = 20  # samples are kept for testing
_EVALUATED = 128  # samples at once, which bounds the memory


def load(part: Part = "test") -> Data:
    """Runs of LENGTH characters, and for each of them the one that follows it.

    The runs do not overlap; those to test by lie between those to train on. A run to test by that
    is one to train on as well is left out.

    Args:
        part: with "validation" only the samples to train on, split once more.

    Returns:
        Both of shape (n, LENGTH), int64 in 0 .. len(ALPHABET) - 1.

    Raises:
        MissingToolError: this PyTorch comes without its sources.
    """
    return sequences(_text(), LENGTH, part, seed=_SPLIT_SEED, one_in=_ONE_IN)


@cache
def _text() -> str:
    """Finding its strings takes a second or two."""
    root = Path(torch.__file__).parent
    paths = [root / name for name in FILES]
    for folder in FOLDERS:
        paths += sorted((root / folder).glob("*.py"))
    try:
        sources = [path.read_text(encoding="utf-8") for path in paths]
    except OSError as error:
        raise MissingToolError(
            "PyTorch's sources in Python",
            "text to learn",
            f"Install PyTorch by pip, or choose another model ({error}).",
        ) from error
    return "\n".join(string for source in sources for string in _strings(source))


def _strings(source: str) -> list[str]:
    """The long strings of a module, in their order."""
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and len(node.value) >= _LEAST
    ]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    return [str(node.value) for node in found]


# ----------------------------------------------------------------------------
# The model.

_CHARACTERS, _WIDTH, _LAYERS, _HEADS = len(ALPHABET), 128, 4, 4


def _shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "embedding.weight": (_CHARACTERS, _WIDTH),
        "position.weight": (LENGTH, _WIDTH),
    }

    def norm(name: str) -> None:
        found[f"{name}.weight"] = (_WIDTH,)
        found[f"{name}.bias"] = (_WIDTH,)

    def linear(name: str, inputs: int, outputs: int) -> None:
        found[f"{name}.weight"] = (outputs, inputs)
        found[f"{name}.bias"] = (outputs,)

    for layer in range(1, _LAYERS + 1):
        block = f"block{layer}"
        norm(f"{block}.norm1")
        linear(f"{block}.attention", _WIDTH, 3 * _WIDTH)
        linear(f"{block}.projection1", _WIDTH, _WIDTH)
        norm(f"{block}.norm2")
        linear(f"{block}.expansion", _WIDTH, 4 * _WIDTH)
        linear(f"{block}.projection2", 4 * _WIDTH, _WIDTH)
    norm("norm")
    linear("dense", _WIDTH, _CHARACTERS)
    return found


SHAPES = _shapes()

_RECIPE = Recipe(batch_size=16, learning_rate=0.1, momentum=0.9, epochs=6, decay="cosine")


def model(framework: str | None = None) -> Model:
    """826,208 parameters; ``framework`` can be nothing but torch."""
    check_framework("docs-gpt", framework, "torch")
    return Model(
        name="docs-gpt",
        title="a GPT learns PyTorch's documentation, by characters",
        shapes=SHAPES,
        metric=PERPLEXITY,
        recipe=_RECIPE,
        load=load,
        initial=initial,
        gradient=gradient_of(_loss, SHAPES),
        evaluate=perplexity,
        chance=float(_CHARACTERS),
        long=_RECIPE,
    )


def initial(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Embeddings normal, weights with variance 1 / inputs, biases 0, norms 1.

    GPT-2's deviation of 0.02 is for Adam: with SGD the gradients of such small embeddings, which a
    normalization follows, would be 50 times as large as all others. The projections that end a
    residual branch are smaller by √(2 · layers), as in GPT-2.
    """
    deeper = 1 / math.sqrt(2 * _LAYERS)

    def part(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.floating]:
        if name.endswith("bias"):
            return np.zeros(shape)
        if "norm" in name:
            return np.ones(shape)
        if name in ("embedding.weight", "position.weight"):
            return rng.standard_normal(shape)
        weights = rng.standard_normal(shape) / math.sqrt(shape[1])
        return weights * deeper if "projection" in name else weights

    parts = [part(name, shape) for name, shape in SHAPES.items()]
    return np.concatenate([each.ravel() for each in parts]).astype(np.float32)


def perplexity(flat: npt.NDArray[np.float32], samples: Samples) -> float:
    """The exponential of a character's mean cross-entropy; infinite where float64 ends."""
    at = unflatten(tensor(flat), SHAPES)
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(samples), _EVALUATED):
            rows = slice(start, start + _EVALUATED)
            inputs, targets = tensor(samples.inputs[rows]), tensor(samples.targets[rows])
            total += float(_loss(at, inputs, targets)) * len(inputs)
    loss = total / len(samples)
    return math.exp(loss) if loss < 700 else math.inf


def _loss(at: Parameters, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(_logits(at, inputs).flatten(0, 1), targets.flatten())


def _logits(at: Parameters, inputs: torch.Tensor) -> torch.Tensor:
    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = at[f"{name}.weight"], at[f"{name}.bias"]
        return functional.layer_norm(x, (_WIDTH,), weight, bias)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, at[f"{name}.weight"], at[f"{name}.bias"])

    x = functional.embedding(inputs, at["embedding.weight"]) + at["position.weight"]
    count = len(inputs)
    for layer in range(1, _LAYERS + 1):
        block = f"block{layer}"
        parts = linear(norm(x, f"{block}.norm1"), f"{block}.attention").chunk(3, dim=-1)
        query, key, value = (
            each.reshape(count, LENGTH, _HEADS, -1).transpose(1, 2) for each in parts
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        seen = seen.transpose(1, 2).reshape(count, LENGTH, _WIDTH)
        x = x + linear(seen, f"{block}.projection1")
        wide = functional.gelu(linear(norm(x, f"{block}.norm2"), f"{block}.expansion"))
        x = x + linear(wide, f"{block}.projection2")
    return linear(norm(x, "norm"), "dense")
