"""Saves an ``ExchangeOutcome`` to a file, so that one process can compare those of several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from innet.codecs import ExchangeOutcome
from innet.codecs.parts import Contribution, Total
from innet.core.files import atomic_write
from innet.core.float_sums import FloatSum
from innet.core.reduce_op import ReduceOp


def save(path: Path, outcome: ExchangeOutcome) -> None:
    """Write the parts of an outcome that verification needs: sums and sent values."""
    local = outcome.contribution
    arrays = {
        "sum": outcome.sum,
        "integer_sum": outcome.integer_sum,
        "indices": outcome.indices,
        "sent": outcome.sent,
        "represented": outcome.represented,
        "applied": outcome.applied,
        "own_indices": local.indices,
        "own_integers": local.integers,
    }
    numbers = {
        "scale": outcome.scale,
        "rounds": outcome.rounds,
        "infinite": outcome.infinite,
        "size": local.size,
        "limbs": local.limbs,
        "shared": local.shared,
        "operation": int(local.operation),
    }
    known: dict[str, Any] = {name: each for name, each in arrays.items() if each is not None}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, numbers=np.array(json.dumps(numbers)), **known)


def load(path: Path) -> ExchangeOutcome:
    """Read an outcome that ``save`` wrote; details and times are not in the file."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    numbers = json.loads(str(arrays["numbers"]))
    return ExchangeOutcome(
        sum=arrays["sum"],
        total=Total(arrays["integer_sum"]),
        scale=float(numbers["scale"]),
        indices=arrays.get("indices"),
        sent=arrays["sent"],
        represented=arrays.get("represented"),
        contribution=Contribution(
            size=int(numbers["size"]),
            indices=arrays.get("own_indices"),
            words=arrays["own_integers"],
            limbs=int(numbers["limbs"]),
            shared=bool(numbers["shared"]),
            operation=_operation(int(numbers["operation"])),
        ),
        applied=arrays.get("applied"),
        rounds=int(numbers["rounds"]),
        infinite=int(numbers["infinite"]),
        details={},
        encode_seconds=0.0,
        decode_seconds=0.0,
    )


def _operation(number: int) -> ReduceOp | FloatSum:
    return ReduceOp(number) if number in list(ReduceOp) else FloatSum(number)
