"""Logs of trainings, written while they run: CSV files, or events for TensorBoard.

Each run has a log, with a row or an event for each iteration. The numbers are those of the record's
``Step``, as float64. Numbers of parts have names such as ``seconds.network`` and
``simulated_seconds.100g``. What is not known in an iteration is left out.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol, Self

import numpy as np

from innet.core.errors import ConfigError, MissingToolError, OutputError
from innet.records import Progress, Step
from innet.records.report import Seconds

LOGS = ("tensorboard", "csv")
FOLDER = "log"  # in the output folder

_PARTS = ("seconds", "simulated_seconds")  # fields of Step that hold several numbers


def numbers_of(step: Step) -> dict[str, float]:
    """The numbers of a step that are known, by name, without the iteration."""
    found: dict[str, float] = {}
    for name, value in step.model_dump(exclude={"iteration"}).items():
        if isinstance(value, dict):
            found |= {f"{name}.{part}": each for part, each in value.items() if each is not None}
        elif value is not None and not isinstance(value, str):
            found[name] = value
    return {name: float(value) for name, value in found.items()}


class TrainingLog:
    """Logs the steps of trainings; pass it as their ``watch``.

        with TrainingLog(["csv"], folder) as log:
            comparison.run(settings, folder, created=now, watch=log)

    Args:
        kinds: ``tensorboard``, ``csv`` or both.
        out_dir: the logs are in its folder ``log``: ``RUN.csv``, and the folder ``RUN`` for
            TensorBoard. Those of earlier runs of the same name are replaced.

    Raises:
        ConfigError: there is no such log.
        MissingToolError: TensorBoard is not installed.
    """

    def __init__(self, kinds: Iterable[str], out_dir: Path) -> None:
        self._kinds = list(dict.fromkeys(kinds))
        self._writers: dict[str, list[_Writer]] = {}
        self._names: dict[str, str] = {}
        for kind in self._kinds:
            if kind not in LOGS:
                raise ConfigError(f"there is no log {kind!r}; choose {' or '.join(LOGS)}.")
        if "tensorboard" in self._kinds:
            _tensorboard()
        self.folder = out_dir / FOLDER

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writers in self._writers.values():
            for each in writers:
                each.close()

    def __call__(self, event: Progress) -> None:
        """Log the event's step, if it has one.

        Raises:
            OutputError: the log cannot be written.
        """
        if event.step is None or not self._kinds:
            return
        try:
            if event.run not in self._writers:
                self._writers[event.run] = self._open(event.run, event.step)
            for writer in self._writers[event.run]:
                writer.write(event.step)
        except OSError as error:
            raise OutputError.of(self.folder, error) from None

    def _open(self, run: str, step: Step) -> list[_Writer]:
        # A run's name may be a codec's description; files have its letters, digits and ".=-".
        name = re.sub(r"[^\w.=-]+", "_", run).strip("_")
        while name in self._names.values():
            name += "_"
        self._names[run] = name
        self.folder.mkdir(parents=True, exist_ok=True)
        made: list[_Writer] = []
        for kind in self._kinds:
            if kind == "csv":
                made.append(_CsvWriter(self.folder / f"{name}.csv", step))
            else:
                made.append(_TensorBoardWriter(self.folder / name))
        return made


class _Writer(Protocol):
    def write(self, step: Step) -> None: ...

    def close(self) -> None: ...


class _CsvWriter:
    """A header, and a row for each step; complete rows after each step."""

    def __init__(self, path: Path, step: Step) -> None:
        plain = [name for name in Step.model_fields if name not in _PARTS]
        seconds = [f"seconds.{name}" for name in Seconds.model_fields]
        simulated = [f"simulated_seconds.{name}" for name in step.simulated_seconds]
        self._file = path.open("w", encoding="utf-8", newline="")
        self._rows = csv.DictWriter(self._file, [*plain, *seconds, *simulated])
        self._rows.writeheader()

    def write(self, step: Step) -> None:
        # repr of a float64 reads back as the same number.
        numbers = {name: repr(value) for name, value in numbers_of(step).items()}
        self._rows.writerow({"iteration": step.iteration, **numbers})
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _TensorBoardWriter:
    """Scalars of each step, as float64: TensorBoard's own summaries would round to float32."""

    def __init__(self, folder: Path) -> None:
        self._tools = _tensorboard()
        for earlier in folder.glob("events.out.tfevents.*"):
            earlier.unlink()
        self._file = self._tools.EventFileWriter(str(folder))

    def write(self, step: Step) -> None:
        tools = self._tools
        summary = tools.Summary()
        for name, value in numbers_of(step).items():
            each = summary.value.add(
                tag=name.replace(".", "/"), tensor=tools.make_tensor_proto(np.float64(value))
            )
            each.metadata.plugin_data.plugin_name = "scalars"
            each.metadata.data_class = tools.DATA_CLASS_SCALAR
        self._file.add_event(
            tools.Event(wall_time=time.time(), step=step.iteration, summary=summary)
        )

    def close(self) -> None:
        self._file.close()


def _tensorboard() -> SimpleNamespace:
    """TensorBoard's writer, without TensorFlow or PyTorch."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - optional
        from tensorboard.compat.proto.summary_pb2 import (  # noqa: PLC0415
            DATA_CLASS_SCALAR,
            Summary,
        )
        from tensorboard.summary.writer.event_file_writer import (  # noqa: PLC0415
            EventFileWriter,
        )
        from tensorboard.util.tensor_util import make_tensor_proto  # noqa: PLC0415
    except ImportError as error:
        raise MissingToolError(
            "TensorBoard",
            "--log tensorboard",
            f"Install it by: pip install 'innet[tensorboard]'; or use --log csv ({error}).",
        ) from error

    return SimpleNamespace(
        Event=Event,
        Summary=Summary,
        DATA_CLASS_SCALAR=DATA_CLASS_SCALAR,
        EventFileWriter=EventFileWriter,
        make_tensor_proto=make_tensor_proto,
    )
