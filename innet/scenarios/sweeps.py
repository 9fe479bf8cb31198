"""Sweeps: one simulation at each combination of the values of some settings.

Points are independent tasks for the pools of ``sweep_workers``. With a folder, each point's record
is written there as soon as it is there, under the digest of all its settings; a sweep that is
begun again takes what it finds.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel

from innet._version import __version__
from innet.core.errors import ConfigError, InnetError, InputError, UnknownNameError
from innet.core.files import atomic_write
from innet.core.registry import literal
from innet.core.settings import SimulateSettings, validate
from innet.core.threads import cores
from innet.records import (
    Axis,
    Machine,
    PointRecord,
    Simulated,
    SimulationRecord,
    SweepFailure,
    SweepPoint,
    SweepRecord,
)
from innet.records.sweep import METRICS, SweepProgress, baseline_metric, label
from innet.reports.outputs import folder_for
from innet.scenarios.background import read_tables
from innet.scenarios.sweep_workers import (
    Answer,
    DaskPool,
    Pool,
    ProcessPool,
    ThisProcess,
)
from innet.sim.network import HOST, Network, network_of, read_network, without_host

RECORD, TABLE, PLOT = "sweep.json", "sweep.csv", "sweep.png"  # file names in the output folder
ATTEMPTS = 3
_DIGITS = 16  # of the digest, in hexadecimal
_NETWORK, _BACKGROUND = "network", "background"
# Settings that name a file count by what is in it.
_FILES = (".toml", ".json", ".txt", ".npy", ".npz", ".csv")


@dataclass(frozen=True, slots=True)
class Task:
    """What runs at each point.

    Attributes:
        function: takes the settings as keyword arguments and returns a record, a report or a dict.
            Processes import it by its name.
        parameters: the settings that it takes. If ``network`` is among them, so are the settings of
            ``innet.sim.Network``, as "network.loss" or, where no parameter has the name, "loss".
        check: raises InnetError for settings that cannot be used; called for all points before the
            first one runs.
    """

    function: Callable[..., Any]
    parameters: tuple[str, ...]
    check: Callable[[dict[str, Any]], object] | None = None

    @property
    def name(self) -> str:
        """Module and name of the function."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def key(self, name: str) -> str:
        """The full name of a setting: itself, or "network.NAME".

        Raises:
            UnknownNameError: there is no such setting; lists those that there are.
        """
        if name in self.parameters:
            return name
        network = [HOST, *(field.name for field in fields(Network))] if self._has_network else []
        short = name.removeprefix(f"{_NETWORK}.")
        if short in network:
            return f"{_NETWORK}.{short}"
        if short != name and network:
            raise UnknownNameError("setting of a network", short, network)
        raise UnknownNameError("setting to sweep", name, [*self.parameters, *network])

    @property
    def _has_network(self) -> bool:
        return _NETWORK in self.parameters


Watch = Callable[[SweepProgress], None]


def axis_of(text: str) -> tuple[str, list[Any]]:
    """The axis that a person wrote as NAME=VALUE,VALUE,...

    Values are numbers or other literals of Python, else text. Settings of a value may follow it, as
    in "codec=dense,topk:ratio=0.01,k=4": what has "=" and no ":" belongs to the value before.

    Raises:
        ConfigError: not of that form.
    """
    name, equals, rest = text.partition("=")
    pieces: list[str] = []
    for piece in rest.split(","):
        if pieces and ":" in pieces[-1] and re.match(r"[^:]*=", piece):
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece.strip())
    if not (name.strip() and equals and all(pieces)):
        raise ConfigError(f"{text[:60]}: write it as NAME=VALUE,VALUE, such as workers=8,16,32.")
    return name.strip(), [literal(piece) for piece in pieces]


def sweep(
    settings: Mapping[str, Any],
    axes: Mapping[str, Sequence[Any]],
    *,
    out_dir: str | Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    attempts: int = ATTEMPTS,
    watch: Watch | None = None,
) -> SweepRecord:
    """Run ``innet.simulate`` at each combination of the values of some settings.

        record = innet.sweep({"network": "100g"}, {"workers": [8, 16], "loss": [0, 1e-4]})
        for point in record.points:
            print(point.values, point.metric("goodput_gbps"))

    Args:
        settings: of ``innet.simulate``, by name, which all points share.
        axes: values by name of a setting of ``innet.simulate`` or of its network, as "loss" or
            "network.loss". The last axis varies fastest.
        out_dir: see ``run``.
        jobs: see ``run``.
        scheduler: see ``run``.
        attempts: see ``run``.
        watch: see ``run``.

    Returns:
        The record. A point that failed is among its ``failures``; the others are complete.

    Raises:
        InputError, MissingToolError, NetworkError: see ``run``.
    """
    return run(
        simulation(),
        settings,
        axes,
        out_dir=out_dir,
        jobs=jobs,
        scheduler=scheduler,
        attempts=attempts,
        watch=watch,
    )


def simulation() -> Task:
    """``innet.simulate`` as what a sweep runs."""
    from innet.codecs import build_codec  # noqa: PLC0415 - it brings Numba
    from innet.scenarios.baselines import baselines_of  # noqa: PLC0415 - likewise
    from innet.scenarios.simulate import simulate, workload_of  # noqa: PLC0415 - likewise

    def check(settings: dict[str, Any]) -> None:
        checked = validate(SimulateSettings, settings)
        baselines_of(checked)
        build_codec(checked.codec, layers=((workload_of(checked).elements,),))

    return Task(simulate, tuple(SimulateSettings.model_fields), check)


def run(
    task: Task,
    settings: Mapping[str, Any],
    axes: Mapping[str, Sequence[Any]],
    *,
    out_dir: str | Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    attempts: int = ATTEMPTS,
    watch: Watch | None = None,
    created: datetime | None = None,
) -> SweepRecord:
    """Run the task at each combination of the axes' values.

    Args:
        task: what runs.
        settings: what all points share, by name.
        axes: values by name of a setting. The last axis varies fastest.
        out_dir: folder of the points' records, of ``sweep.json`` and of ``sweep.csv``. Points that
            it has are not run again. None writes nothing.
        jobs: processes of this machine; 1 runs all in this process. By default one for each core,
            but no more than there are points to run.
        scheduler: address of a Dask scheduler, whose workers run the points instead.
        attempts: how often a point is tried that fails, or whose process is killed. Settings that
            are refused are tried once.
        watch: called for each point.
        created: the time to put into the record; by default now.

    Returns:
        The record. A point that failed is among its ``failures``; the others are complete.

    Raises:
        UnknownNameError: no such setting.
        InputError: axes without values or with equal ones, a setting that is given twice, or that
            a point cannot have: names the point; or a folder that cannot be written.
        MissingToolError, NetworkError: see ``DaskPool``.
    """
    created = created or datetime.now(UTC)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; give at least 1.")
    if jobs is not None and scheduler is not None:
        raise InputError("give jobs or a scheduler: the cluster knows how many workers it has.")
    if attempts < 1:
        raise InputError(f"attempts is {attempts}; give at least 1.")
    checked = _checked_axes(task, settings, axes)
    points = _points(task, settings, checked)
    folder = None if out_dir is None else folder_for(out_dir, (RECORD, TABLE))
    work = _Work(task, points, folder, attempts, watch or (lambda _: None))
    work.take_kept()
    try:
        if work.left:
            with _pool(jobs, scheduler, len(work.left)) as pool:
                work.run(pool)
    finally:  # also what was done until an interruption
        record = SweepRecord(
            innet=__version__,
            created=created,
            machine=Machine.here(),
            settings=_plain(settings),
            axes=tuple(Axis(name=name, values=_plain(values)) for name, values in checked.items()),
            points=tuple(work.done[each.digest] for each in points if each.digest in work.done),
            failures=tuple(
                work.failed[each.digest] for each in points if each.digest in work.failed
            ),
        )
        if folder is not None:
            record.save(folder / RECORD)
            with atomic_write(folder / TABLE) as temporary:
                temporary.write_text(as_csv(record), encoding="utf-8")
    return record


def as_csv(record: SweepRecord) -> str:
    """A row for each point: the values of the axes, what ``shown_metrics`` names, all other
    numbers of the points' ``simulated``, and the seconds of the baselines.
    """
    shown = record.shown_metrics()
    found = [point.metrics() for point in record.points]
    taken = {name if name in found[0] else f"simulated.{name}" for name in shown}
    common = [name for name in (found[0] if found else ()) if all(name in each for each in found)]
    others = [name for name in common if name.startswith("simulated.") and name not in taken]
    seconds = [
        name for name in common if baseline_metric(name)[1] in ("seconds", "iteration_seconds")
    ]
    metrics = [*shown, *others, *(name for name in seconds if name not in taken)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(axis.name for axis in record.axes), *metrics])
    for point in record.points:
        numbers = (point.metric(name) for name in metrics)
        writer.writerow([*map(_cell, point.values.values()), *map(_cell, numbers)])
    return text.getvalue()


def _cell(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


# ----------------------------------------------------------------------------
# Points and their digests.


@dataclass(frozen=True, slots=True)
class _Point:
    values: dict[str, Any]  # of the axes, by the names that the user gave
    settings: dict[str, Any]  # keyword arguments of the function
    digest: str
    described: dict[str, Any]  # what the digest is of


def _checked_axes(
    task: Task, settings: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]
) -> dict[str, tuple[Any, ...]]:
    """The axes by full names."""
    if not axes:
        raise InputError("a sweep needs an axis, such as workers=8,16,32.")
    for name in settings:
        if name not in task.parameters:
            raise UnknownNameError("setting", name, task.parameters)
    found: dict[str, tuple[Any, ...]] = {}
    for name, given in axes.items():
        key = task.key(name)
        if key in found:
            raise InputError(f"{key} is swept twice; give all its values at once.")
        if isinstance(given, str) or not len(given):
            raise InputError(f"{name} is swept over {given!r}; give a list of values.")
        values = tuple(value.item() if hasattr(value, "item") else value for value in given)
        for position, value in enumerate(values):
            if value in values[:position]:
                raise InputError(f"{name}={value} is given twice; give each value once.")
        found[key] = values
    return found


def _points(
    task: Task, settings: Mapping[str, Any], axes: Mapping[str, tuple[Any, ...]]
) -> list[_Point]:
    found: dict[str, _Point] = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        try:
            given = _settings_at(settings, point)
            if task.check is not None:
                task.check(given)
            described = _described(given)
        except InnetError as error:
            raise InputError(f"the point {label(point)} cannot be run: {error}") from None
        key = json.dumps([task.name, _same_numbers(described), __version__], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]
        if digest in found:
            raise InputError(
                f"the points {label(found[digest].values)} and {label(point)} have the same "
                "settings; leave one out."
            )
        found[digest] = _Point(_plain(point), given, digest, described)
    return [*found.values()]


def _settings_at(settings: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a point; a network with changes is a dict of all its settings."""
    given = dict(settings)
    changes = {}
    for name, value in point.items():
        part, dot, setting = name.partition(".")
        if dot:
            assert part == _NETWORK
            changes[setting] = value
        else:
            given[name] = value
    base = given.get(_NETWORK)
    # What a file says goes along, as another machine may not have it.
    if changes or not (base is None or (isinstance(base, str) and not base.endswith(_FILES))):
        tables: dict[str, Any] = {}
        if isinstance(base, (str, Path)) and str(base).endswith(".toml"):
            network, tables = read_network(base)
        else:
            network = Network() if base is None else network_of(base)
        given[_NETWORK] = asdict(network_of({**asdict(network), **without_host(changes)}))
        if tables and given.get(_BACKGROUND) is None:
            given[_BACKGROUND] = read_tables(tables, Path(str(base)).parent)
    if isinstance(given.get(_BACKGROUND), (str, Path)):
        given[_BACKGROUND] = read_tables(given[_BACKGROUND])
    return given


def _described(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that a result depends on, as JSON: files by contents, networks by their settings."""
    found: dict[str, Any] = _plain({key: _file(value) for key, value in settings.items()})
    if settings.get(_NETWORK) is not None:
        found[_NETWORK] = _plain(network_of(settings[_NETWORK]))
    return found


def _same_numbers(value: Any) -> Any:
    """``value`` with 1 for 1.0, which are the same setting."""
    if isinstance(value, dict):
        return {key: _same_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_same_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _file(value: Any) -> Any:
    """A path, or text that names a file, with the digest of the file."""
    if isinstance(value, (list, tuple)):
        return [_file(each) for each in value]
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith(_FILES)):
        with contextlib.suppress(OSError):
            return [str(value), hashlib.sha256(Path(value).read_bytes()).hexdigest()]
    return value


def _plain(value: Any) -> Any:
    """``value`` as JSON has it."""
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# ----------------------------------------------------------------------------
# Running.


_PARTS = ("compute", "encode", "network", "waited", "decode", "exposed")  # of an iteration


def check_metrics(names: Iterable[str]) -> None:
    """Refuse what no record of a simulation has, before a sweep runs; see ``SweepPoint.metric``.

    Raises:
        InputError: a name that is no number's; names what is near.
    """
    known = {*METRICS, *(f"{part}_seconds" for part in _PARTS), *Simulated.model_fields}
    known |= {name for name in SimulationRecord.model_fields if name not in {"format", "innet"}}
    for name in names:
        if name.partition(".")[0] not in known:
            raise UnknownNameError("metric", name, sorted(known))


def _summarized(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """A record without its iterations, which may be many; and, of a model's, their means."""
    iterations = record.get("iterations")
    if not isinstance(iterations, list):
        return record, {}
    short = {name: value for name, value in record.items() if name != "iterations"}
    if short.get("baselines"):
        short["baselines"] = {
            name: {
                **{key: value for key, value in run.items() if key != "iterations"},
                "iteration_seconds": run["seconds"] / len(iterations),
            }
            for name, run in short["baselines"].items()
        }
    if not (iterations and record.get("model")):
        return short, {}
    means = {
        f"{part}_seconds": fmean(seconds for each in iterations for seconds in each[part])
        for part in _PARTS
    }
    return short, {"iteration_seconds": record["seconds"] / len(iterations), **means}


def _pool(jobs: int | None, scheduler: str | None, points: int) -> Pool:
    if scheduler is not None:
        return DaskPool(scheduler)
    jobs = min(cores() if jobs is None else jobs, points)
    return ThisProcess() if jobs == 1 else ProcessPool(jobs)


class _Work:
    """Points that are done, failed, and left."""

    def __init__(
        self,
        task: Task,
        points: Sequence[_Point],
        folder: Path | None,
        attempts: int,
        watch: Watch,
    ) -> None:
        self._task, self._folder, self._attempts, self._watch = task, folder, attempts, watch
        self._total = len(points)
        self.left = {each.digest: each for each in points}
        self.done: dict[str, SweepPoint] = {}
        self.failed: dict[str, SweepFailure] = {}

    def take_kept(self) -> None:
        """Take the points that the folder has; files that are damaged or of others are ignored."""
        if self._folder is None:
            return
        for point in [*self.left.values()]:
            try:
                kept = PointRecord.load(self._folder / f"{point.digest}.json")
            except InputError:
                continue
            same = (kept.innet, kept.function, kept.settings)
            if same == (__version__, self._task.name, point.described):
                self._finish(point, kept.record, "kept")

    def run(self, pool: Pool) -> None:
        """Run what is left; each point as often as it may be tried."""
        tries = dict.fromkeys(self.left, 1)
        for digest, point in self.left.items():
            pool.submit(digest, self._task.function, point.settings)
        for digest, answer in pool.answers():
            point = self.left[digest]
            if answer.record is not None:
                self._keep(point, answer)
                self._finish(point, answer.record, "done")
            elif answer.again and tries[digest] < self._attempts:
                tries[digest] += 1
                self._tell("again", point, answer.error)
                pool.submit(digest, self._task.function, point.settings)
            else:
                del self.left[digest]
                self.failed[digest] = SweepFailure(
                    values=point.values, error=answer.error, attempts=tries[digest]
                )
                self._tell("failed", point, answer.error)

    def _keep(self, point: _Point, answer: Answer) -> None:
        if self._folder is None:
            return
        assert answer.record is not None
        PointRecord(
            innet=answer.innet,
            created=datetime.now(UTC),
            machine=answer.machine or Machine.here(),
            settings=point.described,
            function=self._task.name,
            record=answer.record,
        ).save(self._folder / f"{point.digest}.json")

    def _finish(self, point: _Point, record: dict[str, Any], what: Literal["kept", "done"]) -> None:
        del self.left[point.digest]
        short, means = _summarized(record)
        self.done[point.digest] = SweepPoint(
            values=point.values, digest=point.digest, record=short, means=means
        )
        self._tell(what, point)

    def _tell(
        self, what: Literal["kept", "done", "again", "failed"], point: _Point, error: str = ""
    ) -> None:
        number = len(self.done) + len(self.failed)
        self._watch(SweepProgress(what, point.values, number, self._total, error))
