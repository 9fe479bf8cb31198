"""innet's own all-reduces in a testbed, beside what else its links carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from innet import programs
from innet.allreduce.loop import Loop, Round, RoundResult, reduce_loop
from innet.allreduce.rack_sums import result_of
from innet.codecs import build_codec
from innet.core.errors import InputError, StateError
from innet.topology.aggregation import Request, WorkerEnd, aggregation_of, make_plan
from innet.topology.emulation import default_timing

if TYPE_CHECKING:
    from innet.sim.network import Network
    from innet.sim.simulation import Simulation
    from innet.testbed.hosts import BedHost


class BedJob:
    """An all-reduce whose workers are hosts of a bed; made by ``Testbed.job``.

    Attributes:
        finished: when the last worker had the sum, simulated seconds; None until then.
        is_begun: its workers are under way, or done.
    """

    def __init__(
        self,
        program: str,
        network: Network,
        hosts: Sequence[BedHost],
        gradients: Sequence[NDArray[np.float32]],
        *,
        codec: Any,
        start: float,
        number: int,
        seed: int,
    ) -> None:
        if program not in programs.available():
            raise InputError(
                f"a job needs a switch with one of innet's programs, {', '.join(_ONE_SWITCH)}, by "
                f"its name; this one runs {program or 'none'}."
            )
        compiled = programs.available()[program]
        values = compiled.parameters["VALUES"]
        if len(hosts) != len(gradients) or not hosts:
            raise InputError(f"{len(hosts)} hosts and {len(gradients)} gradients; give each one.")
        self.plan = make_plan(compiled.program, values, Request(workers=len(hosts), job=number))
        self.hosts, self.start = tuple(hosts), start
        self.finished: float | None = None
        self.is_begun = False
        timing = default_timing(self.plan, network)
        aggregation = aggregation_of(compiled.program)
        self._ends: dict[int, WorkerEnd] = {
            n: aggregation.worker_end(self.plan, host, timing)
            for n, host in enumerate(self.plan.workers)
        }
        flat = {
            n: np.ascontiguousarray(gradient, np.float32).reshape(-1)
            for n, gradient in enumerate(gradients)
        }
        shapes = {gradient.size for gradient in flat.values()}
        if len(shapes) != 1:
            raise InputError(f"gradients of {sorted(shapes)} elements; all have as many.")
        codecs = {n: build_codec(codec, seed=seed, worker=n) for n in flat}
        for n, each in codecs.items():
            each.check(flat[n])
        self._loop: Loop = reduce_loop(codecs, flat, tuple(flat), has_epochs=False, checked=True)
        self._sum: NDArray[np.float32] | None = None

    def commands(self) -> tuple[str, ...]:
        """Those of the switch's tables."""
        return self.plan.switches[0].commands

    def result(self) -> NDArray[np.float32]:
        """The sum, float32 (elements,).

        Raises:
            StateError: not all workers have it yet.
        """
        if self._sum is None:
            raise StateError("the job is not done yet: let time pass by run().")
        return self._sum

    # ------------------------------------------------------------------ for the bed

    def begin(self, simulation: Simulation, numbers: Mapping[BedHost, int]) -> int:
        """Let workers begin; returns the number of their group."""
        self.is_begun = True
        group = self._launch(simulation, numbers, None)
        assert group is not None, "there is a first round"
        return group

    def go_on(self, simulation: Simulation, numbers: Mapping[BedHost, int]) -> int | None:
        """A round is done: the number of the next one's group; None if it was the last."""
        return self._launch(simulation, numbers, result_of(self._ends))

    def _launch(
        self, simulation: Simulation, numbers: Mapping[BedHost, int], answer: RoundResult | None
    ) -> int | None:
        try:
            request = next(self._loop) if answer is None else self._loop.send(answer)
        except StopIteration as stop:
            self._sum = next(iter(stop.value.outcomes.values())).sum
            self.finished = simulation.now
            return None
        assert isinstance(request, Round), "it has one attempt"
        at = max(simulation.now, self.start)
        ends = {}
        for worker, segments in request.segments.items():
            self._ends[worker].start(segments, at)
            number = numbers[self.hosts[worker]]
            simulation.set_frame(number, self.plan.layout)
            ends[number] = self._ends[worker]
        return simulation.launch(ends, dict.fromkeys(ends, at))


_ONE_SWITCH = ("slots-32", "slots-64", "slots-256", "slots-1024")
