"""The control plane of meters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from innet.switch.control.names import Names
from innet.switch.control.values import inside
from innet.switch.engine import SwitchState
from innet.switch.state.meters import MeterState, Rate


class MeterControl:
    """Rates, in packets or bytes per microsecond, and bursts, in packets or bytes."""

    state: SwitchState

    @cached_property
    def _meters(self) -> Names:
        return Names("meter", (each.array.name for each in self.state.meters))

    def meter(self, name: str) -> MeterState:
        """The meter array called ``name``."""
        return self.state.meters[self._meters.find(name)]

    def meter_set_rates(self, name: str, index: int, rates: Sequence[Rate]) -> None:
        """Give a cell new rates, in ascending order, with full buckets.

        ``index`` is the handle of an entry for a direct meter.
        """
        meter = self.meter(name)
        meter.set_rates([self._meter_index(meter, index)], rates)

    def meter_array_set_rates(self, name: str, rates: Sequence[Rate]) -> None:
        """The same for all cells."""
        self.meter(name).set_rates(slice(None), rates)

    def meter_get_rates(self, name: str, index: int) -> list[Rate]:
        """The rates of a cell in ascending order; none when it was given none."""
        meter = self.meter(name)
        return meter.get_rates(self._meter_index(meter, index))

    def _meter_index(self, meter: MeterState, index: int) -> int:
        if meter.array.table is not None:
            return self.state.tables[meter.array.table].get(index).index
        return inside(index, meter.array.size, meter.array.name)
