"""Parameters of a part that follow schedules; see ``innet.core.schedules``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from innet.core.errors import ConfigError
from innet.core.schedules import Schedule, is_schedule, parse
from innet.core.settings import Settings, validate

LAYERS = "layers"  # the key of codecs by pattern in a codec's description


@dataclass(frozen=True, slots=True)
class ScheduledSettings:
    """A part's parameters, some of which follow schedules.

    Attributes:
        model: of the parameters.
        fixed: those without a schedule that are not defaults.
        schedules: by parameter; may be empty.
        source: whose they are, for messages.
    """

    model: type[Settings]
    fixed: Mapping[str, Any]
    schedules: Mapping[str, Schedule]
    source: str

    @classmethod
    def of(cls, model: type[Settings], given: Mapping[str, Any], source: str) -> ScheduledSettings:
        """What a user gave for a part.

        Raises:
            ConfigError: a text that is no schedule, or a schedule for what is no number; or a
                number of a schedule is out of the parameter's range.
        """
        fixed, schedules = {}, {}
        for key, value in given.items():
            found = _schedule_for(model, key, value, source)
            if found is None:
                fixed[key] = value
            else:
                schedules[key] = found
        made = cls(model, fixed, schedules, source)
        for step in sorted({0, *(turn for each in schedules.values() for turn in each.turns)}):
            made.at(step)
        return made

    def at(self, step: int) -> Settings:
        """The parameters in all-reduce ``step``.

        Raises:
            ConfigError: a number out of the parameter's range; names the schedule and the step.
        """
        if not self.schedules:
            return validate(self.model, self.fixed, self.source)
        numbers = {
            key: _number(self.model, key, schedule(step))
            for key, schedule in self.schedules.items()
        }
        try:
            return validate(self.model, {**self.fixed, **numbers}, self.source)
        except ConfigError as error:
            of = ", ".join(f"{key} = {each}" for key, each in self.schedules.items())
            raise ConfigError(f"{error} (in all-reduce {step}, by {of})") from None


def scheduled_keys(given: Mapping[str, Any]) -> set[str]:
    """The parameters of a part's description that are schedules, also functions' names."""
    return {key for key, value in given.items() if is_schedule(value)}


def as_text(given: Mapping[str, Any]) -> dict[str, Any]:
    """A part's description with schedules as text."""
    return {
        key: str(value) if isinstance(value, Schedule) else value for key, value in given.items()
    }


def spec_as_text(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A complete description of a codec, also by layer, as copies and with schedules as text."""
    return {
        key: {name: spec_as_text(each) for name, each in part.items()}
        if key == LAYERS
        else as_text(part)
        for key, part in spec.items()
    }


def without_schedules(saved: object, spec: Mapping[str, Any]) -> tuple[Any, Any]:
    """Two complete descriptions as text, without the parameters that are schedules in either."""
    mine = spec_as_text(spec)
    if not isinstance(saved, Mapping):
        return saved, mine
    theirs = dict(saved)
    for key, part in mine.items():
        other = theirs.get(key)
        if not isinstance(other, Mapping):
            continue
        if key == LAYERS:
            pairs = {name: without_schedules(other.get(name), each) for name, each in part.items()}
            mine[key] = {name: pair[1] for name, pair in pairs.items()}
            theirs[key] = {**other, **{name: pair[0] for name, pair in pairs.items()}}
        elif other.get("name") == part.get("name"):
            left_out = scheduled_keys(part) | scheduled_keys(other)
            mine[key] = {name: each for name, each in part.items() if name not in left_out}
            theirs[key] = {name: each for name, each in other.items() if name not in left_out}
    return theirs, mine


def _schedule_for(model: type[Settings], key: str, value: object, source: str) -> Schedule | None:
    field = model.model_fields.get(key)
    numeric = field is not None and bool(_numeric(field.annotation))
    if not numeric and not isinstance(value, Schedule):
        return None  # another text, which the model checks
    found = parse(value)
    if found is not None and field is not None and not numeric:
        raise ConfigError(f"{source}: {key} is no number, so it has no schedule ({found}).")
    return found if field is not None else None


def _number(model: type[Settings], key: str, value: float) -> float:
    """The number as the parameter's type: whole ones are rounded to the nearest, ties to even."""
    takes_float = float in _numeric(model.model_fields[key].annotation)
    return float(value) if takes_float else round(value)


def _numeric(annotation: Any) -> set[type]:
    """Which of int and float a parameter takes as one number."""
    if get_origin(annotation) is Annotated:
        return _numeric(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*(_numeric(each) for each in get_args(annotation)))
    return {annotation} & {int, float}
