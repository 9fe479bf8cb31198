"""A claim of a paper: what it says, and what is measured here.

A claim has the paper's result, the measurement here, and, where possible, the criterion by which
the claim holds here.

Each kind of measurement is a class derived from ``Measure`` that is registered in ``KINDS``.
Another distribution adds one by an entry point in the group "innet.claims".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from innet.core.errors import ConfigError, UnknownNameError
from innet.core.registry import Registry
from innet.core.settings import CodecDescription, Settings, validate
from innet.records import Finding, Series

if TYPE_CHECKING:
    from innet.experiments.comparison import Store

TIMES = "\N{MULTIPLICATION SIGN}"

Workers = Annotated[int, Field(ge=1, le=64)]
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

    @property
    def training_seeds(self) -> range:
        """The seeds of each training; one in a quick run."""
        return range(self.seed, self.seed + (1 if self.quick else self.seeds))


@dataclass(frozen=True, slots=True)
class ClaimContext:
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

    A class of a kind has a field ``kind``, a ``Literal`` of its name, and the method ``measure``.
    """

    kind: str

    @property
    def models(self) -> tuple[str, ...]:
        """Models that it trains. That they can be used is checked before anything is measured."""
        return ()

    def finding(self, context: ClaimContext) -> Finding:
        """What ``measure`` finds, without its verdict in a quick run.

        Raises:
            InnetError: it cannot be measured.
        """
        found = self.measure(context)
        return found.model_copy(update={"holds": None}) if context.options.quick else found

    def measure(self, context: ClaimContext) -> Finding:
        """Measure and judge. The claim and the paper's result are filled in by the caller.

        Raises:
            InnetError: it cannot be measured.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method measure")


class ModelMeasure(Measure):
    """A measurement on one model.

    Attributes:
        model: a registered model's name.
    """

    model: str

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)


class OfflineMeasure(ModelMeasure):
    """A measurement while a model trains, without a switch between the workers.

    Attributes:
        workers: of that training.
    """

    workers: Workers = 4


KINDS: Registry[type[Measure]] = Registry("kind of claim", "innet.claims")
for _kind, _class in {
    "training": "training:Training",
    "build-up": "traffic:BuildUp",
    "selection-ratio": "selection:SelectionRatio",
    "selection-time": "selection:SelectionTime",
    "aggregation": "traffic:SparseAggregation",
    "traffic": "traffic:WorkerTraffic",
    "lossless": "traffic:Lossless",
    "wire-rates": "traffic:WireRates",
    "element-rates": "traffic:ElementRates",
    "similarity": "traffic:Similarity",
    "variants": "training:Variants",
    "time": "times:TimeRatios",
    "convergence": "training:Convergence",
    "selection-quality": "selection:SelectionQuality",
    "published-selection-time": "selection:PublishedSelectionTime",
}.items():
    KINDS.register(_kind, f"innet.claims.{_class}")


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


# ----------------------------------------------------------------------------
# What the kinds share.


def reached(found: Mapping[str, float], least: Mapping[str, float]) -> bool | None:
    """Whether each number is at least as large as is asked of it; None where nothing is asked."""
    return all(found[label] >= bound for label, bound in least.items()) if least else None


def bars(values: Mapping[str, float]) -> tuple[Series, ...]:
    """A bar for each number."""
    return tuple(Series(label=label, y=(value,)) for label, value in values.items())


def lines(x: Sequence[float], values: Mapping[str, Sequence[float]]) -> tuple[Series, ...]:
    """A line over the same places for each row of numbers."""
    return tuple(Series(label=label, x=tuple(x), y=tuple(y)) for label, y in values.items())
