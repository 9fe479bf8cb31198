"""Models, trainings and measurements, the records they write, and tables and plots of those.

``train`` is the Python call behind ``innet train``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from innet.codecs import CodecSpec
    from innet.records import TrainingRecord, Watcher

__all__ = ["train"]


def train(
    model: str = "digits-cnn",
    codecs: Sequence[CodecSpec] = ("topk",),
    *,
    out_dir: str | Path | None = None,
    watch: Watcher | None = None,
    **settings: Any,
) -> TrainingRecord:
    """Train a model with each codec, and with plain float32 sums beside them.

    All runs of one seed start from the same parameters and see the same batches.

        record = innet.experiments.train(codecs=["dense", "topk"], workers=4, epochs=2)
        for run in record.runs:
            print(run.title, run.final_score, run.compression)

    Args:
        model: a registered model: "digits-cnn", "mnist5k-cnn", "charlm", "ncf",
            "mnist5k-resnet", "docs-gpt".
        codecs: names of codecs, or mappings of their parts.
        out_dir: folder for ``train.json`` and, where matplotlib is installed, ``train.png``; None
            writes nothing.
        watch: called for each step and each preparation.
        **settings: the other fields of ``innet.core.settings.TrainSettings``: ``workers``,
            ``epochs``, ``batch_size``, ``learning_rate``, ``momentum``, ``repeats``, ``seed``,
            ``schedule``, ``decay``, ``evaluate``, ``framework``, ``engine``, ``values_per_packet``;
            ``networks``, on which it takes simulated time, with ``compute``, ``codec_times``,
            ``encode_time``, ``decode_time`` and ``baselines``.

    Returns:
        The record: every step of every run.

    Raises:
        ConfigError: a setting that does not exist or has no such value.
        InnetError: see ``innet.experiments.comparison.run``.
    """
    # Imported here: tables and plots need neither codecs nor models.
    from datetime import UTC, datetime  # noqa: PLC0415

    from innet.core.settings import TrainSettings, validate  # noqa: PLC0415
    from innet.experiments.comparison import run  # noqa: PLC0415
    from innet.reports.registry import draw  # noqa: PLC0415

    asked = {"model": model, "codecs": tuple(codecs), **settings}
    result = run(
        validate(TrainSettings, asked, "train()"),
        out_dir,
        created=datetime.now(UTC),
        watch=watch,
        draw=draw,
    )
    return result.record
