"""The claims of the codecs' papers, as data: ``papers.toml`` and ``time_claims.toml`` beside this.

A claim has the paper's result, the measurement here, and, where possible, the criterion by which
the claim holds here.

Each kind of measurement is a class derived from ``Measure`` that is registered in ``KINDS``.
Another distribution adds one by an entry point in the group "innet.claims".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from innet.core.errors import ConfigError, UnknownNameError
from innet.core.registry import Registry
from innet.core.settings import CodecDescription, Settings, WorkerCount, validate

if TYPE_CHECKING:
    from innet.experiments.comparison import Store
    from innet.records import Finding

Workers = Annotated[int, Field(ge=1, le=64)]
Counts = Annotated[tuple[Workers, ...], Field(strict=False, min_length=1)]
Codecs = Annotated[dict[str, CodecDescription], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """Seeds and length of the measurements.

    Attributes:
        seeds: of each training.
        seed: the first of them, and that of everything else.
        quick: a short run as a check; it gives no verdicts.
    """

    seeds: int = 3
    seed: int = 0
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What a measurement is given besides its own settings.

    Attributes:
        paper: whose claim it is.
        options: how thoroughly to measure.
        store: keeps trainings, so that none is made twice.
    """

    paper: Paper
    options: ReproduceOptions
    store: Store


class Measure(Settings):
    """One measurement of a claim: the settings of its kind.

    A class of a kind has a field ``kind``, a ``Literal`` of its name, and the method ``finding``.
    Papers are read for their names alone as well, so ``finding`` imports what takes long to import.
    """

    kind: str

    @property
    def models(self) -> tuple[str, ...]:
        """Models that it trains. That they can be used is checked before anything is measured."""
        return ()

    def finding(self, context: Context) -> Finding:
        """Measure. The claim and the paper's result are filled in by the caller.

        Raises:
            InnetError: it cannot be measured.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method finding")


KINDS: Registry[type[Measure]] = Registry("kind of claim", "innet.claims")
for _kind, _class in {
    "training": "Training",
    "build-up": "BuildUp",
    "selection-ratio": "SelectionRatio",
    "selection-time": "SelectionTime",
    "aggregation": "Aggregation",
    "traffic": "Traffic",
}.items():
    KINDS.register(_kind, f"innet.experiments.papers:{_class}")
for _kind, _class in {
    "lossless": "Lossless",
    "wire-rates": "WireRates",
    "element-rates": "ElementRates",
    "similarity": "Similarity",
    "variants": "Variants",
}.items():
    KINDS.register(_kind, f"innet.experiments.traffic_claims:{_class}")
KINDS.register("time", "innet.experiments.time_claims:Timing")
KINDS.register("convergence", "innet.experiments.convergence_claims:Convergence")
KINDS.register("selection-quality", "innet.experiments.selection_claims:SelectionQuality")
KINDS.register(
    "published-selection-time", "innet.experiments.selection_claims:PublishedSelectionTime"
)


class _ModelMeasure(Measure):
    """A measurement on one model."""

    model: str

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)


class Training(_ModelMeasure):
    """A training through the switch, compared with plain sums from the same initial parameters.

    Attributes:
        model: a registered model's name.
        workers: data-parallel workers.
        codec: by default the paper's ``codec``.
        epochs: by default those of the model's recipe.
        batch_size: likewise. Half of it with twice the workers keeps the number of steps.
        schedule: of the model's recipes; "long" ends where plain sums hardly improve any more.
        max_score_drop: the claim holds if the mean score is at most this much worse than that of
            plain sums: percentage points of a share, per cent of other scores.
        min_compression: and if the bytes sent are fewer by at least this factor.
    """

    kind: Literal["training"]
    workers: WorkerCount = 4
    codec: CodecDescription | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    schedule: Literal["short", "long"] = "short"
    max_score_drop: Annotated[float, Field(ge=0)]
    min_compression: Annotated[float, Field(ge=0)] = 0.0

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import training  # noqa: PLC0415 - takes long

        return training(self, context)


class BuildUp(_ModelMeasure):
    """The union of the workers' selections, by the number of workers, on a training's gradients.

    Attributes:
        model: the model that is trained, without a network, for a few steps.
        counts: numbers of workers.
        codecs: codecs by label.
        constant: the claim holds if this codec's union is the same for all counts, and those of the
            others at least double.
    """

    kind: Literal["build-up"]
    counts: Counts
    codecs: Codecs
    constant: str

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import build_up  # noqa: PLC0415 - takes long

        return build_up(self, seed=context.options.seed, quick=context.options.quick)


class SelectionRatio(_ModelMeasure):
    """The selection ratio of a selector relative to its target, while a model trains.

    Attributes:
        model: the model that is trained, without a network.
        workers: of that training.
        codecs: codecs by label.
        targets: shares of the gradient to select.
        within: the claim holds if, for each target, the mean of selected / target over the second
            half of the training is within this factor of 1.
    """

    kind: Literal["selection-ratio"]
    workers: Workers = 4
    codecs: Codecs
    targets: Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
    within: Annotated[float, Field(gt=1)]

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import selection_ratio  # noqa: PLC0415 - takes long

        return selection_ratio(self, seed=context.options.seed, quick=context.options.quick)


class SelectionTime(Measure):
    """Time to select, and to keep the rest, of a gradient with Laplace's distribution.

    Attributes:
        codecs: what selects, by label.
        elements: of the gradient; a tenth in a quick run.
        subject: whose times are compared with the others'.
        min_ratio: by label, how many times as long as the subject the others must take at least
            for the claim to hold.
    """

    kind: Literal["selection-time"]
    codecs: Codecs
    elements: Annotated[int, Field(ge=1000)]
    subject: str
    min_ratio: dict[str, float] = Field(default_factory=dict)

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import selection_time  # noqa: PLC0415 - takes long

        return selection_time(self, seed=context.options.seed, quick=context.options.quick)


class Aggregation(Measure):
    """Bytes and time of an all-reduce of sparse tensors over the switch, compared with ``dense``.

    Attributes:
        codecs: by label; "dense" is what the others are compared with.
        elements: of each worker's tensor; a tenth in a quick run.
        workers: how many.
        density: share of the elements that are not zero.
        overlap: whether they are at the same coordinates on all workers.
        min_ratio: the claim holds if ``subject`` sends fewer bytes by at least this factor.
        subject: a label.
    """

    kind: Literal["aggregation"]
    codecs: Codecs
    elements: Annotated[int, Field(ge=1000)]
    workers: WorkerCount = 4
    density: Annotated[float, Field(gt=0, le=1)]
    overlap: bool
    subject: str
    min_ratio: Annotated[float, Field(ge=0)] = 0.0

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import aggregation  # noqa: PLC0415 - takes long

        return aggregation(self, seed=context.options.seed, quick=context.options.quick)


class Traffic(_ModelMeasure):
    """Bytes of one worker in an all-reduce of a training's gradients, by the number of workers.

    Attributes:
        model: whose gradients.
        counts: of workers.
        codecs: by label.
        constant: the claim holds where this one's bytes are the same for all counts.
    """

    kind: Literal["traffic"]
    counts: Annotated[tuple[WorkerCount, ...], Field(strict=False, min_length=1)]
    codecs: Codecs
    constant: str

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import traffic  # noqa: PLC0415 - takes long

        return traffic(self, seed=context.options.seed, quick=context.options.quick)


def _measure_of(given: object) -> object:
    """The settings of the kind that is named."""
    if not isinstance(given, Mapping):
        return given
    try:
        return validate(KINDS.get(str(given.get("kind"))), given)
    except (UnknownNameError, ConfigError) as error:
        raise ValueError(str(error)) from None


class Claim(Settings):
    """What a paper says, its numbers and set-up, and what is measured here.

    Attributes:
        claim: what the paper says, in our words.
        paper_result: the paper's numbers and set-up.
        measure: what is measured here.
        why: why the claim does not hold here; shown only if it does not hold.
    """

    claim: str
    paper_result: str
    why: str = ""
    measure: Annotated[Measure, BeforeValidator(_measure_of)]


class Paper(Settings):
    """One codec's paper.

    Attributes:
        paper: who, where, when.
        codec: how the preset is set for models as small as ours.
        codecs: the same for single models, by name.
        note: how and why that differs from the paper.
        claims: at least one.
        not_reproduced: what cannot be tried here, each with the reason.
    """

    paper: str
    codec: CodecDescription
    codecs: dict[str, CodecDescription] = Field(default_factory=dict)
    note: str = ""
    claims: tuple[Claim, ...] = Field(min_length=1, strict=False)
    not_reproduced: tuple[str, ...] = Field(min_length=1, strict=False)

    def codec_for(self, model: str) -> CodecDescription:
        """How the codec is set for a model."""
        return self.codecs.get(model, self.codec)


def _document(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def papers() -> Mapping[str, Paper]:
    """All papers by the name of their preset, or of their way to train, in the file's order."""
    from innet.experiments.time_claims import time_claims  # noqa: PLC0415 - it needs this module

    document, times = _document("papers.toml"), time_claims(_document("time_claims.toml"))
    for name, claims in times.items():
        document[name]["claims"] += claims
    return {name: validate(Paper, entry, "papers.toml") for name, entry in document.items()}


def paper_of(codec: str) -> Paper:
    """The paper of a preset.

    Raises:
        UnknownNameError: there are no claims for that name; lists those that there are.
    """
    found = papers().get(codec)
    if found is None:
        raise UnknownNameError("codec with claims", codec, papers())
    return found
