"""English text that every Python has: the topics of its own help, as characters to predict."""

from __future__ import annotations

import string

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import MissingToolError
from innet.experiments.models.model import Part
from innet.experiments.samples import Data, Samples, split

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
    codes = encode(_text())
    count = (len(codes) - 1) // LENGTH
    inputs = codes[: count * LENGTH].reshape(count, LENGTH)
    targets = codes[1 : count * LENGTH + 1].reshape(count, LENGTH)
    data = _split(Samples(inputs, targets))
    return data if part == "test" else _split(data.train)


def _split(samples: Samples) -> Data:
    data = split(samples, _SPLIT_SEED, _ONE_IN)
    known = set(map(bytes, data.train.inputs))
    new = [row for row, run in enumerate(data.test.inputs) if bytes(run) not in known]
    return Data(train=data.train, test=data.test.take(np.array(new, np.int64)))


def encode(text: str) -> NDArray[np.int64]:
    """Each character's place in the alphabet; of what is not in it, that of a question mark."""
    places = {character: place for place, character in enumerate(ALPHABET)}
    return np.array([places.get(character, _REST) for character in text], np.int64)


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
