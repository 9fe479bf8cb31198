"""When jobs arrive at a cluster: drawn at random, or from a file of commas."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from innet.core.errors import ConfigError
from innet.core.settings import Settings

MOST_JOBS = 65_535  # a packet has 16 bits for the number of its job
_TEXTS = ("name", "codec", "start_jitter")  # columns that are no numbers


class ArrivalTable(Settings):
    """``[arrivals]``: jobs arrive as a Poisson process, each of a kind that is drawn.

    Attributes:
        rate: jobs per second, in the mean.
        jobs: how many arrive in all.
    """

    rate: Annotated[int | float, Field(gt=0, le=1e9)]
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS)]


def drawn(
    kinds: Sequence[Mapping[str, Any]], arrivals: ArrivalTable, seed: int
) -> list[dict[str, Any]]:
    """Tables of jobs that arrive at random.

    Args:
        kinds: tables of jobs. Each job is of one of them, in proportion to its ``weight`` (1).
        arrivals: how often, and how many. The first waits for a random time, too.
        seed: of all draws.
    """
    rng = np.random.default_rng([seed, 0xA2])
    starts = np.cumsum(rng.exponential(1 / arrivals.rate, arrivals.jobs)).tolist()
    weights = np.array([kind.get("weight", 1.0) for kind in kinds], float)
    chosen = rng.choice(len(kinds), arrivals.jobs, p=weights / weights.sum()).tolist()
    found = []
    for number, (start, kind) in enumerate(zip(starts, chosen, strict=True), start=1):
        name = kinds[kind].get("name")
        table = {key: value for key, value in kinds[kind].items() if key != "weight"}
        label = str(number) if name is None else f"{name}-{number}"
        found.append({**table, "name": label, "start": start})
    return found


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Tables of jobs from a file with a line for each, whose first line names the settings.

    A setting that is empty is not stated.

    Raises:
        ConfigError: it cannot be read, has no job, or a line has more values than names.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is no CSV: {error}.") from None
    if not rows:
        raise ConfigError(
            f"{path} has no job; its first line names settings, such as start,workers,size, and "
            "each other line is a job."
        )
    found: list[dict[str, Any]] = []
    for line, row in enumerate(rows, start=2):
        if None in row:
            raise ConfigError(f"{path}: line {line} has more values than its first line has names.")
        found.append(
            {
                name.strip(): text if name.strip() in _TEXTS else _number(text)
                for name, text in row.items()
                if text
            }
        )
    return found


def _number(text: str) -> int | float | str:
    """What a value means; text that is no number is refused later, by the name of its setting."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
