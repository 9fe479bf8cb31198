"""What one all-reduce did: counts, times and errors."""

from __future__ import annotations

import inspect
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

#: One attribute, or several that are described together.
_ATTRIBUTES = re.compile(
    r"^(\w+(?:, \w+)*): (.+?)(?=\n\w+(?:, \w+)*: |\Z)", re.DOTALL | re.MULTILINE
)


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Complete the JSON schema of ``model`` from the sections "Attributes" of its docstrings."""
    schema["description"] = _sections(model)[0]
    for each in reversed(model.__mro__):
        for names, text in _ATTRIBUTES.findall(_sections(each)[1]):
            for name in names.split(", "):
                if name in schema["properties"]:
                    schema["properties"][name]["description"] = " ".join(text.split())


def _sections(documented: type) -> tuple[str, str]:
    """The first paragraph of a class's docstring, and its attributes."""
    text, _, rest = (inspect.getdoc(documented) or "").partition("\nAttributes:\n")
    attributes = rest.partition("\n\n")[0]
    return " ".join(text.partition("\n\n")[0].split()), inspect.cleandoc(" \n" + attributes)


class Frozen(BaseModel):
    """Base of everything in a record: never changed once written, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_describe)


class Seconds(Frozen):
    """Times of one all-reduce; all but ``simulated`` are wall time on this machine.

    Attributes:
        encode: codec, float32 to words: the mean of the workers.
        network: protocol, transport and switch, of all workers together.
        decode: codec, words to float32: the mean of the workers, who all decode the same words.
        total: from the call to its return. Where one process runs all workers, it also holds the
            codecs' time of the others.
        switch: the part of ``network`` spent in the switch program; None where it runs apart.
        simulated: what the exchange took in the time of simulated links; None where packets are
            real. It is 0 where links have no delay and lose nothing.
    """

    encode: float
    network: float
    decode: float
    total: float
    switch: float | None = None
    simulated: float | None = None


class Simulated(Frozen):
    """One all-reduce in simulated time; two runs with the same seed have the same.

    Attributes:
        seconds: from the first packet to the last result.
        goodput_gbps: bits of the gradient, 32 per element, that each worker got summed per second,
            in units of 1e9.
        elements_per_second: of the gradient, likewise.
        packets: put onto links, over all of them.
        bytes: of them, with preamble, frame check sequence and gap.
        lost: packets that were lost on links.
        dropped: packets that found an egress queue full.
        marked: packets that were marked as they met congestion.
        retransmissions: packets that workers sent again.
        queue_bytes_max: the most bytes that waited in an egress queue, the packet that is sent
            next included.
        utilization: of each class of links, the part of the time that they were busy: their mean.
    """

    seconds: float
    goodput_gbps: float
    elements_per_second: float
    packets: int
    bytes: int
    lost: int
    dropped: int
    marked: int
    retransmissions: int
    queue_bytes_max: int
    utilization: dict[str, float]


class Report(Frozen):
    """What one all-reduce did.

    Attributes:
        version: of these fields.
        exact: whether the decoded integer sum equalled the oracle's; None where not compared.
        workers: how many took part.
        codec: name or description.
        program: name of the P4 program.
        engine: what ran the program.
        transport: what carried the packets.
        values_per_packet: int32 values in each packet.
        elements: of each worker's gradient.
        selected: elements that the workers' selectors chose, all workers together.
        union: coordinates that at least one worker chose.
        rounds: exchanges one after the other that it took; a codec may need several.
        packets_sent: by all workers, retransmissions included.
        packets_received: by all workers.
        bytes_sent: by the worker that sent most, from Ethernet header to the last value, without
            preamble, frame check sequence and gap; retransmissions included.
        bytes_dense: what one worker would send, in the same framing and packets of the same number
            of values, if each element travelled once as a float32.
        retransmissions: packets sent again, all workers together.
        seconds: wall time.
        switch_packets: packets that the switch processed.
        max_abs_error: largest difference, of any element, from the float64 sum of the inputs.
            Includes what the selectors left for later. None where not compared.
        max_abs_error_sent: the same from the float64 sum of what the selectors sent; what
            quantization costs. None where not compared.
        infinite: elements of the decoded sum that lie beyond float32 and so are infinite, although
            their integers were summed. The errors are infinite then, in JSON null.
        simulated: what it took in simulated time; None without a network that has one.
        details: what codec, program or transport add, by name.
    """

    version: Literal[1] = 1
    exact: bool | None
    workers: int
    codec: str
    program: str
    engine: str
    transport: str
    values_per_packet: int
    elements: int
    selected: int = 0
    union: int = 0
    rounds: int
    packets_sent: int
    packets_received: int
    bytes_sent: int
    bytes_dense: int
    retransmissions: int = 0
    seconds: Seconds
    switch_packets: int = 0
    max_abs_error: float | None
    max_abs_error_sent: float | None
    infinite: int = 0
    simulated: Simulated | None = None
    details: dict[str, Any] = Field(default_factory=dict)

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented way, mypy's limit
    @property
    def compression(self) -> float:
        """bytes_dense / bytes_sent; 1 where nothing had to be sent."""
        return self.bytes_dense / self.bytes_sent if self.bytes_sent else 1.0

    @model_validator(mode="before")
    @classmethod
    def _recompute(cls, data: object) -> object:
        """Lets JSON with the computed field be read back; the field follows from the others."""
        if isinstance(data, dict) and "compression" in data:
            return {key: value for key, value in data.items() if key != "compression"}
        return data
