"""Settings: each declared once, with its type, range, default and help.

The command line, TOML files and Python take settings from the models here: a declaration below
(such as ``Workers``) says what is allowed and what it means, a model says which settings belong
together and their defaults, and ``innet.cli.options`` makes command-line options of a model.

All models refuse unknown keys, take values of the right type only (``workers = "4"`` and
``workers = true`` are mistakes, not four and one) and know their ranges. ``validate`` turns
pydantic's findings into one ``ConfigError`` that says, for each key, what was given and what is
allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import ErrorDetails

from innet.core.engines import EngineName
from innet.core.errors import ConfigError
from innet.core.files import read_toml
from innet.core.local_sgd import LocalSgd
from innet.core.numbers import is_int

Model = TypeVar("Model", bound=BaseModel)

MAX_WORKERS = 1 << 15  # of a job: three levels of switches with 32 below each
BITMAP_BITS = 32  # of the header's bitmap: workers or switches directly below a switch
MAX_WINDOW = 1 << 16  # values of the header's slot field
MAX_PRIORITY = 7  # class selectors of IPv4's DSCP (RFC 2474)
ONE_SWITCH_PROGRAM, MANY_SWITCHES_PROGRAM = "slots", "tree"
OWNERS_PROGRAM, OWNERS_TREE_PROGRAM = "collectives", "collectives-tree"
"""What runs by default: on one switch, and on several."""
LISTEN = "127.0.0.1:48879"  # of the switch service
HOLD = 1e-3  # seconds; how long reordering holds a packet back at most
TIMEOUT = 0.2  # seconds, on networks between processes
GIVE_UP = 30.0  # seconds
# Seconds per element, assumed: a codec on a GPU that reads or writes 100 bytes for each element
# at 1 TB/s.
CODEC_TIME = 1e-10
# Seconds of a worker for the gradient of a small network, assumed: some forty kernels of a GPU, one
# after the other, and 5 microseconds to start each; its arithmetic takes less.
COMPUTE_TIME = 200e-6
_SHOWN = 60  # characters of a wrong value that an error message repeats
RENAMED_KEYS = {
    "quantiser": "quantizer",
    "feedback": "error_feedback",
    "fabric": "transport",
    "colour": "color",
}  # former names of settings, for error messages


def program_with_owners(program: str) -> str:
    """What to run instead of a program, or a build of one, that knows all-reduces only."""
    is_tree = program.partition("-")[0] == MANY_SWITCHES_PROGRAM
    return OWNERS_TREE_PROGRAM if is_tree else OWNERS_PROGRAM


def too_many_workers(workers: int, program: str = "a job", most: int = MAX_WORKERS) -> str:
    """The message by which too many workers are refused, wherever they are given.

    Args:
        workers: more than ``most``.
        program: what they were given to.
        most: how many it takes.
    """
    return f"{workers} workers; {_limit_of_workers(program, most)}"


def _limit_of_workers(program: str = "a job", most: int = MAX_WORKERS) -> str:
    limit = f"{program} takes 1 to {most}"
    if most >= MAX_WORKERS:
        return f"{limit}."
    larger = OWNERS_TREE_PROGRAM if program.startswith(OWNERS_PROGRAM) else MANY_SWITCHES_PROGRAM
    return (
        f"{limit}, as a packet names each worker by one of {most} bits. The program for larger "
        f"jobs is {larger}, which takes 1 to {MAX_WORKERS}."
    )


def _not_too_many_workers(workers: object) -> object:
    """Refuse too many workers with the reason, before pydantic checks the range without one."""
    if is_int(workers) and workers > MAX_WORKERS:
        raise ValueError(_limit_of_workers())
    return workers


class Settings(BaseModel):
    """What all settings models share: frozen, strict, no unknown keys, no NaN.

    Attributes:
        panel: heading of the settings that the class adds, in ``--help``.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # the import of all models is then four times as fast
    )
    panel: ClassVar[str] = "Settings"


def _power_of_two(number: int) -> int:
    if number & (number - 1):
        raise ValueError("choose a power of two")
    return number


# ----------------------------------------------------------------------------
# The declarations. The description is the help of the command-line option.

Framing: TypeAlias = Literal["udp", "raw"]
"""What carries innet's header: "udp" or "raw" (Ethernet)."""
WindowControl: TypeAlias = Literal["fixed", "aimd"]
ServiceTransport: TypeAlias = Annotated[
    str,
    Field(
        description="How packets go between workers and the switch service: shm (memory that "
        "processes of one machine share), udp, auto (shm where possible, else udp), or your own."
    ),
]
ResultFormat: TypeAlias = Annotated[
    str | None,
    Field(
        description="Send sums back in this number format, such as bf16, fp8-e4m3 or mxfp4: their "
        "owners round them and keep the rest. It needs a program with owners, such as "
        "collectives, the default then."
    ),
]
CollectiveName: TypeAlias = Literal[
    "all-reduce", "reduce-scatter", "reduce", "all-gather", "broadcast", "barrier"
]
"""What workers do together; ``innet.Collective`` has a method of each name."""
ALL_REDUCE: CollectiveName = "all-reduce"
SwitchKind: TypeAlias = Literal["builtin", "bmv2"]
DelayBy: TypeAlias = Literal["netem", "workers"]
CodecDescription: TypeAlias = str | dict[str, Any]
"""A registered codec's name, or its parts by name with settings."""
AnyPath: TypeAlias = Annotated[Path, Strict(False)]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Duration: TypeAlias = Annotated[float, Field(ge=0)]

WorkerCount: TypeAlias = Annotated[
    int, Field(ge=1, le=MAX_WORKERS), BeforeValidator(_not_too_many_workers)
]
Workers: TypeAlias = Annotated[WorkerCount, Field(description="Number of workers.")]
Codec: TypeAlias = Annotated[
    CodecDescription, Field(description="A codec: NAME or NAME:KEY=VALUE,...; see `innet codecs`.")
]
Program: TypeAlias = Annotated[
    str,
    Field(
        description="The switches' P4 program; see `innet p4 list`. By default "
        f"{ONE_SWITCH_PROGRAM} on one switch, {MANY_SWITCHES_PROGRAM} on a --topology of several "
        "and for more than 32 workers."
    ),
]
SwitchEngine: TypeAlias = Annotated[
    EngineName, Field(description="How the built-in switch runs the program.")
]
PriorityQueues: TypeAlias = Annotated[
    int, Field(ge=1, le=32, description="Egress queues per port, one for each priority.")
]
ValuesPerPacket: TypeAlias = Annotated[
    Literal[32, 64, 256, 1024], Field(description="int32 values in each packet.")
]
PacketsPerCall: TypeAlias = Annotated[int, Field(description="Packets in one call of the switch.")]
PacketFraming: TypeAlias = Annotated[
    Framing, Field(description="udp, or raw: Ethernet with innet's EtherType.")
]
WindowSize: TypeAlias = Annotated[int, Field(ge=1, le=MAX_WINDOW), AfterValidator(_power_of_two)]
Window: TypeAlias = Annotated[
    WindowSize | None,
    Field(
        description="Chunks of a worker under way at once, a power of two. Smaller windows suit "
        "links with short queues. By default all slots."
    ),
]
Topology: TypeAlias = Annotated[
    str | None,
    Field(
        description="Network of switches: star, tree, leaf-spine, fat-tree, dumbbell or your own; "
        "by default what the program needs."
    ),
]
Racks: TypeAlias = Annotated[
    int | None,
    Field(ge=1, le=MAX_WORKERS, description="Switches with workers, for a tree or a leaf-spine."),
]
Depth: TypeAlias = Annotated[int | None, Field(ge=1, le=8, description="Levels of a tree.")]
Ports: TypeAlias = Annotated[
    int | None, Field(ge=2, description="Ports of each switch of a fat-tree; 4 by default.")
]
Seed: TypeAlias = Annotated[
    int, Field(ge=0, description="Seed of generated data, hashes and faults.")
]
Size: TypeAlias = Annotated[
    int, Field(ge=0, le=2**30, description="Elements of each worker's generated gradient.")
]
Density: TypeAlias = Annotated[
    float, Field(ge=0, le=1, description="Share of a generated gradient that is not zero.")
]
Rounds: TypeAlias = Annotated[
    int, Field(ge=1, description="All-reduces in sequence; the report is of the last.")
]
PartialAfter: TypeAlias = Annotated[
    float | None,
    Field(
        gt=0,
        description="Seconds after which sums continue without late workers; by default never.",
    ),
]
WindowControlChoice: TypeAlias = Annotated[
    WindowControl, Field(description="How the window adapts to congestion.")
]
Loss: TypeAlias = Annotated[Probability, Field(description="Probability that a packet is lost.")]
Duplicate: TypeAlias = Annotated[
    Probability, Field(description="Probability that a packet arrives twice.")
]
Reorder: TypeAlias = Annotated[
    Probability, Field(description="Probability that a packet is reordered.")
]
BatchSize: TypeAlias = Annotated[
    int, Field(ge=1, le=4096, description="Samples per worker and iteration.")
]
LearningRate: TypeAlias = Annotated[
    float, Field(gt=0, le=10, description="Step size of SGD, for the mean gradient.")
]
Decay: TypeAlias = Literal["constant", "cosine"]
Momentum: TypeAlias = Annotated[float, Field(ge=0, lt=1, description="Momentum of SGD.")]
StartJitter: TypeAlias = Annotated[
    str,
    Field(
        description="How much later each worker begins an iteration, at random: none, "
        "uniform:seconds=1e-5 (from 0 to that) or exponential:mean=1e-5 (seconds)."
    ),
]
Priority: TypeAlias = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_PRIORITY,
        description="Priority of the job's packets; switches serve the highest first.",
    ),
]
SimulatedNetworks: TypeAlias = tuple[
    Annotated[
        str,
        Field(
            description="Also simulate the training's time on this network: a preset "
            "(1g, 10g, 25g, 40g, 100g, 400g), with settings as in 100g:delay=2e-6, or a TOML file "
            "of them."
        ),
    ],
    ...,
]


def default_program(
    topology: str | None, workers: int = 1, collective: CollectiveName = "all-reduce"
) -> str:
    """The program that a network runs by default.

    Args:
        topology: name of the topology, with or without options; None if none was chosen.
        workers: number of workers of a job; more than one switch can name are spread over racks.
        collective: what it has to do.
    """
    if topology is None:
        one_switch = workers <= BITMAP_BITS
    else:
        one_switch = topology.partition(":")[0] == "star"
    if collective != ALL_REDUCE:
        return OWNERS_PROGRAM if one_switch else OWNERS_TREE_PROGRAM
    return ONE_SWITCH_PROGRAM if one_switch else MANY_SWITCHES_PROGRAM


# ----------------------------------------------------------------------------
# The models.


class RunSettings(Settings):
    """Settings of every run."""

    panel: ClassVar[str] = "Run"

    workers: Workers = 4
    values_per_packet: ValuesPerPacket = 64
    seed: Seed = 0


class NetworkSettings(RunSettings):
    """Topology, P4 program and packets."""

    panel: ClassVar[str] = "Network"

    topology: Topology = None
    racks: Racks = None
    depth: Depth = None
    ports: Ports = None
    program: Program = Field(
        default_factory=lambda given: default_program(
            given.get("topology"), given.get("workers", 1)
        )
    )
    framing: PacketFraming = "udp"
    window: Window = None

    def with_workers(self, workers: int) -> Self:
        """The same with another number of workers. It determines the program if none was chosen."""
        changes: dict[str, Any] = {"workers": workers}
        if "program" not in self.model_fields_set:
            does = self.collective if isinstance(self, CollectiveSettings) else ALL_REDUCE
            if getattr(self, "results", None) is not None:
                does = "reduce-scatter"  # and an all-gather
            changes |= {"program": default_program(self.topology, workers, does)}
        return self.model_copy(update=changes)


class CodecSettings(Settings):
    """The codec."""

    panel: ClassVar[str] = "Codec"

    codec: Codec = "dense"


class TensorSettings(Settings):
    """The workers' gradients: generated, or read from ``input``."""

    panel: ClassVar[str] = "Gradients"

    size: Size = 1_000_000
    density: Density = 1.0
    input: Annotated[
        tuple[AnyPath, ...],
        Field(strict=False, description="NumPy file (.npz, .npy), an array for each worker."),
    ] = ()


class OutageSettings(Settings):
    """An outage of workers or switches.

    Attributes:
        begin, end: virtual seconds; without an end it is permanent.
        workers: indices; by default all, or none if switches are named.
        switches: names.
    """

    begin: Duration = 0.0
    end: Duration | None = None
    workers: tuple[Annotated[int, Field(ge=0, lt=MAX_WORKERS)], ...] = Field(
        default=(), strict=False
    )
    switches: tuple[str, ...] = Field(default=(), strict=False)


class FaultSettings(Settings):
    """Faults of packets on every link, in each direction; see ``innet.network.Faults``.

    Probabilities are per packet. Times are virtual seconds.
    """

    panel: ClassVar[str] = "Faults"

    loss: Loss = 0.0
    duplicate: Duplicate = 0.0
    reorder: Reorder = 0.0
    corrupt: Annotated[
        Probability, Field(description="Probability that a packet has wrong bits.")
    ] = 0.0
    truncate: Annotated[
        Probability, Field(description="Probability that a packet is truncated.")
    ] = 0.0
    mark: Annotated[
        Probability, Field(description="Probability that a packet gets a congestion mark.")
    ] = 0.0
    delay: Annotated[Duration, Field(description="Simulated seconds of delay per link.")] = 0.0
    jitter: Annotated[Duration, Field(description="Most seconds of random extra delay.")] = 0.0
    hold: Annotated[
        Duration, Field(description="Most seconds that --reorder holds packets back.")
    ] = HOLD
    outages: tuple[OutageSettings, ...] = Field(
        default=(), strict=False, description="Workers or switches that are cut off for a while."
    )
    restarts: tuple[Duration, ...] = Field(
        default=(),
        strict=False,
        description="Time in seconds at which the switches lose all registers.",
    )


class CollectiveSettings(Settings):
    """What the workers do together."""

    panel: ClassVar[str] = "Run"

    collective: Annotated[
        CollectiveName,
        Field(
            description="What the workers do; all but all-reduces need a program with owners, such "
            "as collectives, the default then. The root is worker 0."
        ),
    ] = ALL_REDUCE


class AllReduceSettings(CodecSettings, TensorSettings, NetworkSettings, CollectiveSettings):
    """One all-reduce in this process, of generated tensors or of those in ``input``.

    With ``input``, ``workers`` is the number of its arrays.
    """

    panel: ClassVar[str] = "Run"

    engine: SwitchEngine = "jit"
    faults: FaultSettings = FaultSettings()
    window_control: WindowControlChoice = "fixed"
    partial_after: PartialAfter = None
    results: ResultFormat = None
    network: Annotated[
        str | None,
        Field(
            description="Let packets take simulated time: a preset (1g, 10g, 25g, 40g, 100g, "
            "400g), with settings as in 100g:loss=1e-4, or a TOML file of them."
        ),
    ] = None
    attempts: Annotated[
        int, Field(ge=1, le=1000, description="Attempts if it stalls, each in a new epoch.")
    ] = 1


class JobSettings(CodecSettings, NetworkSettings):
    """A job whose workers are processes, for the workers and their switches."""

    panel: ClassVar[str] = "Job"

    jobs: Annotated[
        int,
        Field(
            ge=1, le=32, description="Jobs on the network at the same time, with --workers each."
        ),
    ] = 1
    job: Annotated[int, Field(ge=1, description="Number of this job, from 1.")] = 1
    loss: Loss = 0.0
    duplicate: Duplicate = 0.0
    reorder: Reorder = 0.0
    delay: Annotated[
        float,
        Field(ge=0, le=10, description="Seconds of delay per link, added by the workers."),
    ] = 0.0
    timeout: Annotated[
        float, Field(gt=0, description="Seconds until a packet is sent again, at least.")
    ] = TIMEOUT
    give_up: Annotated[float, Field(gt=0, description="Seconds after which a worker gives up.")] = (
        GIVE_UP
    )
    partial_after: PartialAfter = None


class MininetSettings(JobSettings, TensorSettings, CollectiveSettings):
    """One job, or several equal jobs, on a Mininet network."""

    panel: ClassVar[str] = "Mininet"

    switch: Annotated[SwitchKind, Field(description="bmv2 is simple_switch.")] = "builtin"
    engine: SwitchEngine = "jit"
    size: Size = 100_000
    rounds: Rounds = 1
    rate: Annotated[
        float | None, Field(gt=0, le=1000, description="Mbit/s of every link; no limit by default.")
    ] = None
    queue: Annotated[
        int | None,
        Field(
            ge=1,
            le=1 << 20,
            description="With --rate: packets that a switch's port holds; links then count "
            "preamble, check sequence and gap, as cables do. By default 15 kB.",
        ),
    ] = None
    link_delay: Annotated[
        float, Field(ge=0, le=10_000, description="Milliseconds on every link, one way.")
    ] = 0.0
    delay_by: Annotated[
        DelayBy | None,
        Field(description="What adds the delay; by default netem, if the kernel has it."),
    ] = None
    priority_queues: PriorityQueues = 1
    pcap: Annotated[
        AnyPath | None, Field(description="Folder for captures of all interfaces of all switches.")
    ] = None
    simple_switch: Annotated[
        AnyPath | None, Field(description="BMv2's executable; by default the one on PATH.")
    ] = None
    thrift_port: Annotated[
        int, Field(ge=1, le=65535, description="Port of the switches' control planes.")
    ] = 9090
    log_level: Annotated[
        Literal["off", "trace", "debug", "info", "warn", "error"],
        Field(description="Log level of the switches."),
    ] = "off"

    @field_validator("queue")
    @classmethod
    def _of_a_rate(cls, queue: int | None, others: ValidationInfo) -> int | None:
        if queue is not None and others.data.get("rate") is None:
            raise ValueError("only links with a rate have queues; give rate, too")
        return queue

    @field_validator("delay")
    @classmethod
    def _not_the_workers(cls, seconds: float) -> float:
        """``delay`` is in seconds and of the workers, not what --delay of the command sets."""
        if seconds:
            raise ValueError("give link_delay, in milliseconds, as --delay does")
        return seconds


class ServiceSettings(Settings):
    """The built-in switch as a service for jobs; see ``innet.service.server``."""

    panel: ClassVar[str] = "Service"

    listen: Annotated[
        str,
        Field(
            description="IPv4 address of this machine and port, for UDP and TCP; port 0 takes a "
            "free one."
        ),
    ] = LISTEN
    program: Annotated[
        str,
        Field(
            description="A shipped P4 program: slots or harvest, on one switch; or tree, for more "
            "than 32 workers, on as many switches as each job needs."
        ),
    ] = ONE_SWITCH_PROGRAM
    values_per_packet: ValuesPerPacket = 256
    key: Annotated[
        str | None,
        Field(description="Secret that workers need to join. Other users see it in `ps`."),
    ] = None
    key_file: Annotated[AnyPath | None, Field(description="A file that holds the key.")] = None
    jobs: Annotated[
        int, Field(ge=1, description="Jobs at the same time; each gets an equal part of the slots.")
    ] = 4
    workers_max: Annotated[
        WorkerCount,
        Field(description="Workers that a job may have. By default 32, with program tree 1024."),
    ] = Field(
        default_factory=lambda given: (
            1024
            if given.get("program") in {MANY_SWITCHES_PROGRAM, OWNERS_TREE_PROGRAM}
            else BITMAP_BITS
        )
    )
    window: Window = None
    transport: ServiceTransport = "auto"
    metrics: Annotated[
        str | None, Field(description="Serve metrics for Prometheus at this address, over HTTP.")
    ] = None
    threads: Annotated[
        int | None,
        Field(
            ge=1,
            le=64,
            description="Threads that forward packets; by default one for each four processors. "
            "One, if the program's state does not allow more, and the service says why.",
        ),
    ] = None
    engine: SwitchEngine = "jit"

    @field_validator("key")
    @classmethod
    def _not_empty(cls, key: str | None) -> str | None:
        if key == "":
            raise ValueError("the key is empty; leave it out, or choose one")
        return key


Straggler: TypeAlias = Annotated[
    str,
    Field(
        description="How much longer workers compute: none, exponential:mean=0.1, "
        "lognormal:sigma=0.1 or fixed:worker=0,factor=2."
    ),
]
Framework: TypeAlias = Annotated[
    str | None,
    Field(description="What computes gradients: numpy or torch; by default the model's."),
]
Codecs: TypeAlias = Annotated[
    tuple[Codec, ...],
    Field(min_length=1, strict=False, description="Codecs, all different."),
]
Seeds: TypeAlias = Annotated[
    int, Field(ge=1, le=1000, description="Number of seeds, from --seed on.")
]
Pauses: TypeAlias = Annotated[
    tuple[str, ...],
    Field(
        strict=False,
        description="WORKER:ITERATION:SECONDS: a worker pauses before that iteration, "
        "counted from 1.",
    ),
]


class TrainingSettings(RunSettings):
    """Settings of all trainings. Each worker has one shard of the samples."""

    engine: SwitchEngine = "jit"


class SimulatedTrainingSettings(TrainingSettings):
    """What an iteration takes in simulated time; see ``innet.experiments.simulated_time``."""

    panel: ClassVar[str] = "Simulated time"

    networks: SimulatedNetworks = Field(default=(), strict=False)
    window: Window = None
    compute: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="Seconds that a worker takes for a gradient (assumed).",
        ),
    ] = COMPUTE_TIME
    codec_times: Annotated[
        Literal["assumed", "measured"],
        Field(
            description="Times of codecs: assumed (--encode-time and --decode-time), or measured "
            "on this machine. Measured times differ between runs."
        ),
    ] = "assumed"
    encode_time: Annotated[
        float,
        Field(ge=0, le=1, description="Seconds that a codec takes to encode an element (assumed)."),
    ] = CODEC_TIME
    decode_time: Annotated[
        float,
        Field(ge=0, le=1, description="Seconds that a codec takes to decode an element (assumed)."),
    ] = CODEC_TIME
    straggler: Straggler = "none"
    pauses: Pauses = ()
    baselines: tuple[
        Annotated[
            str,
            Field(
                description="Also train with a ring all-reduce that rounds at each hop, as in "
                "ring-bfloat16 and ring-mxfp8-e4m3:rounding=stochastic, or that is coded without "
                "loss: ring:lossless=measured. Plain float32 sums take the time of a ring anyway."
            ),
        ],
        ...,
    ] = Field(default=(), strict=False)


class DemoSettings(SimulatedTrainingSettings):
    """The demonstration: one training with three ways to sum gradients."""

    panel: ClassVar[str] = "Training"

    framework: Framework = None
    batch_size: BatchSize = 16
    learning_rate: LearningRate = 0.05
    momentum: Momentum = 0.9
    iterations: Annotated[
        int, Field(ge=1, le=1_000_000, description="Optimizer steps of each of the three runs.")
    ] = 330
    ratio: Annotated[
        float, Field(gt=0, le=1, description="Share of the elements that top-k sends.")
    ] = 0.01
    networks: SimulatedNetworks = Field(default=("10g", "100g"), strict=False)


def _local_sgd(text: str | None) -> str | None:
    try:
        if text is not None:
            LocalSgd.parse(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return text


class TrainSettings(SimulatedTrainingSettings):
    """One training for each codec and seed, compared with plain float32 sums.

    If ``batch_size``, ``learning_rate``, ``momentum``, ``epochs`` or ``decay`` is None, the model's
    recipe applies, of which ``schedule`` chooses one.
    """

    panel: ClassVar[str] = "Training"

    model: Annotated[
        str,
        Field(
            description="What learns: digits-cnn, mnist5k-cnn, charlm, ncf, mnist5k-resnet, "
            "docs-gpt, or a model of your own: docs/training.md lists and explains them."
        ),
    ] = "digits-cnn"
    framework: Framework = None
    codecs: Codecs = ("topk",)
    results: ResultFormat = None
    batch_size: BatchSize | None = None
    learning_rate: LearningRate | None = None
    momentum: Momentum | None = None
    optimizer: Annotated[
        str,
        Field(
            description="sgd, with the model's momentum; adam (0.9, 0.999, 1e-8), by default with "
            "learning rate 0.001; or one of PyTorch's, as in adamw:weight_decay=0.1."
        ),
    ] = "sgd"
    epochs: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000,
            description="Passes over the samples; by default as many as the model's recipe has.",
        ),
    ] = None
    repeats: Seeds = 1
    schedule: Annotated[
        Literal["short", "long"],
        Field(
            description="The model's recipe: short; or long, which trains until plain sums have "
            "flattened, see docs/training.md."
        ),
    ] = "short"
    decay: Annotated[
        Decay | None,
        Field(description="Decay of the learning rate; by default that of the model's recipe."),
    ] = None
    evaluate: Annotated[
        Literal["test", "validation"],
        Field(description="What scores are measured on; use validation to choose settings."),
    ] = "test"
    local_sgd: Annotated[
        str | None,
        AfterValidator(_local_sgd),
        Field(
            description="Local SGD: all workers average their parameters every K2 steps, those of "
            "a rack every K1 steps. K2 or K1,K2, such as 4,16."
        ),
    ] = None
    racks: Racks = None
    rack_codec: Annotated[
        Codec, Field(description="Codec of averages within racks, with --local-sgd K1,K2.")
    ] = "dense"

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        """Other optimizers than SGD have their own moments."""
        if self.optimizer != "sgd" and self.momentum is not None:
            raise ValueError(
                f"momentum with optimizer {self.optimizer}, which has its own; leave one of them "
                "out."
            )
        if self.optimizer != "sgd" and self.local_sgd is not None:
            raise ValueError(
                f"local_sgd with optimizer {self.optimizer}: it is of SGD; leave one of them out."
            )
        return self

    @model_validator(mode="after")
    def _check_local(self) -> Self:
        """Refuse settings that mean nothing together."""
        if self.local_sgd is None:
            given = self.model_fields_set & {"racks", "rack_codec"}
            if given and (self.racks is not None or self.rack_codec != "dense"):
                raise ValueError(
                    f"{' and '.join(sorted(given))} without local_sgd: only local SGD averages "
                    "within racks; add local_sgd, such as 4,16, or leave it out."
                )
        elif self.networks or self.baselines:
            raise ValueError(
                "local_sgd with networks or baselines: trainings by local SGD take no simulated "
                "time; leave one of them out. innet.Collective(network=..., rack_codec=...) says "
                "what a single sum takes."
            )
        return self


class EmulationSettings(SimulatedTrainingSettings):
    """A training of one's own script; see ``innet.EmulatedTraining``."""

    codecs: Codecs = ("dense", "topk")
    networks: SimulatedNetworks = Field(default=("100g",), strict=False)
    seeds: Seeds = 1


class SimulateSettings(CodecSettings, NetworkSettings):
    """All-reduces in simulated time: of generated gradients, or of a model's training iterations.

    Without ``model`` an iteration is one all-reduce of ``size`` elements. If ``compute``,
    ``bucket_cap_mb`` or ``first_bucket_mb`` is None, the model's compute profile and the buckets
    of DistributedDataParallel apply.
    """

    panel: ClassVar[str] = "Simulation"

    network: Annotated[
        str | dict[str, Any],
        Field(
            description="Rates, delays and queues: a preset (1g, 10g, 25g, 40g, 100g, 400g), with "
            "settings as in 100g:loss=1e-4, or a TOML file of them."
        ),
    ] = "100g"
    switch: Annotated[
        Literal["p4", "sharp", "nvls"],
        Field(
            description="What sums: p4, a program; sharp, switches of the network that sum without "
            "one; nvls, the switches within hosts with several GPUs, and a ring between hosts."
        ),
    ] = "p4"
    gpus_per_host: Annotated[
        int,
        Field(
            ge=1,
            le=1024,
            description="Workers are GPUs, of which each host has so many, joined by faster links: "
            "local_rate and local_latency of the network.",
        ),
    ] = 1
    nics_per_host: Annotated[
        int | None,
        Field(
            ge=1,
            le=1024,
            description="Network cards of a host with several GPUs, a divisor of their number; by "
            "default one for each GPU.",
        ),
    ] = None
    model: Annotated[
        str | None,
        Field(
            description="Simulate training iterations of a model, by the shapes of its layers: "
            "see docs/simulate.md, or a TOML file of your own."
        ),
    ] = None
    iterations: Annotated[
        int, Field(ge=1, le=1_000_000, description="Iterations, one after the other.")
    ] = 1
    size: Size = 1_000_000
    density: Density = 1.0
    compute: Annotated[
        Duration | None,
        Field(
            description="Seconds of forward and backward pass in an iteration; by default those "
            "of the model, see docs/simulate.md."
        ),
    ] = None
    layer_times: Annotated[
        Literal["flops", "parameters"],
        Field(description="What the time of a layer is proportional to."),
    ] = "flops"
    bucket_cap_mb: Annotated[
        float | None,
        Field(
            gt=0,
            description="MiB of gradients after which a bucket is full; by default 25, as in "
            "PyTorch's DistributedDataParallel.",
        ),
    ] = None
    first_bucket_mb: Annotated[
        float | None,
        Field(gt=0, description="MiB of the first bucket; by default 1, or --bucket-cap-mb."),
    ] = None
    encode_time: Annotated[
        Duration, Field(description="Seconds that the codec takes to encode an element (assumed).")
    ] = CODEC_TIME
    decode_time: Annotated[
        Duration, Field(description="Seconds that the codec takes to decode an element (assumed).")
    ] = CODEC_TIME
    straggler: Straggler = "none"
    pauses: Pauses = ()
    start_jitter: StartJitter = "none"
    faults: FaultSettings = FaultSettings()
    partial_after: PartialAfter = None
    window_control: WindowControlChoice = "fixed"
    thin: Annotated[
        bool,
        Field(
            description="Packets carry no values, but take the time and bytes of packets with "
            "values: for many workers and large models. Sums are not compared."
        ),
    ] = False
    elements_per_packet: Annotated[
        int | None,
        Field(
            ge=1,
            le=65535,
            description="Values that a thin packet represents, at most 16368 (IPv4); by default "
            "--values-per-packet.",
        ),
    ] = None
    fast_forward: Annotated[
        bool,
        Field(
            description="Skip what repeats itself, exactly: periods of thin packets, with the "
            "programs slots and tree, on a network where nothing is random."
        ),
    ] = True
    sensitivity: Annotated[
        bool, Field(description="Simulate again with half and twice of each assumed constant.")
    ] = False
    baselines: Annotated[
        tuple[str, ...],
        Field(
            strict=False,
            description="Also simulate an all-reduce between hosts: ring, halving-doubling, "
            "nccl-tree, hierarchical-ring, nvls-ring, parameter-server, "
            "sharded-parameter-server, all-gather or gtopk-tree. Of float32, or of another type or "
            "number format, as in ring-bfloat16 and ring-mxfp8-e4m3; or coded without loss, as in "
            "ring:lossless=1.3.",
        ),
    ] = ()
    transport: Annotated[
        str,
        Field(
            description="What carries the baselines' messages: tcp, dctcp, roce or dcqcn, with "
            "settings as in tcp:min_timeout=2e-4."
        ),
    ] = "tcp"
    background: Annotated[
        str | dict[str, Any] | None,
        Field(
            description="Other traffic: a TOML file with tables [[flow]], [[incast]] and "
            "[[random]]. A network's file may have these tables, too."
        ),
    ] = None
    samples: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="Samples of queues, links, pauses, slots, throughput, windows and rates in "
            "the first iteration, of baselines as well. Up to twice as many are taken. With --plot "
            "or --csv 200 by default.",
        ),
    ] = 0
    sample_interval: Annotated[
        float | None,
        Field(
            ge=1e-9,
            description="Seconds from one sample to the next; doubled when there are twice as many "
            "as --samples. By default so that there are as many.",
        ),
    ] = None


Placement: TypeAlias = Literal["packed", "spread", "random"]
Queueing: TypeAlias = Literal["fifo", "backfill"]


class JobsSettings(SimulateSettings):
    """Several jobs in simulated time: each with hosts of its own, or on ``hosts`` that they share
    as they come and go.
    """

    hosts: Annotated[
        int | None,
        Field(
            ge=1,
            description="Hosts of a cluster that jobs share as they come and go. By default each "
            "job has hosts and slots of its own all the time.",
        ),
    ] = None
    placement: Annotated[
        Placement,
        Field(
            description="Which free hosts of the cluster a job gets: of as few racks as possible, "
            "of as many as possible, or any."
        ),
    ] = "packed"
    memory: Annotated[
        Literal["shares", "first-come", "bandwidth"],
        Field(
            description="Slots that a job of the cluster gets, unless it states its window: an "
            "equal share that all can have at once, all of them, or as many as its workers' rate "
            "fills within a round trip."
        ),
    ] = "shares"
    queueing: Annotated[
        Queueing,
        Field(
            description="Which waiting jobs of the cluster begin: in the order of their arrival, "
            "or each for which there are hosts and slots."
        ),
    ] = "fifo"


class ThroughputSettings(Settings):
    """A sweep over all combinations of the listed values."""

    panel: ClassVar[str] = "Sweep"

    workers: tuple[Workers, ...] = Field(default=(2, 4), min_length=1, strict=False)
    codecs: tuple[str, ...] = Field(default=("dense",), min_length=1, strict=False)
    values_per_packet: tuple[ValuesPerPacket, ...] = Field(
        default=(64,), min_length=1, strict=False
    )
    windows: tuple[WindowSize, ...] = Field(
        default=(64, 256),
        min_length=1,
        strict=False,
        description="Chunks of a worker under way at once, powers of two.",
    )
    topologies: tuple[str, ...] = Field(
        default_factory=lambda given: (
            "star" if max(given.get("workers", (1,))) <= BITMAP_BITS else "tree",
        ),
        min_length=1,
        strict=False,
        description="Networks of switches. By default star; tree for more than 32 workers.",
    )
    switches: tuple[Literal["memory", SwitchKind], ...] = Field(
        default=("memory",),
        min_length=1,
        strict=False,
        description="memory; in Mininet, with root, builtin or bmv2.",
    )
    size: Annotated[int, Field(ge=1, le=2**30, description="Elements of each gradient.")] = (
        1_000_000
    )
    size_bmv2: Annotated[
        int, Field(ge=1, le=2**30, description="The same for bmv2, which is slower.")
    ] = 100_000
    density: Density = 1.0
    rounds: Annotated[
        int, Field(ge=1, description="All-reduces at each point, after one to warm up.")
    ] = 5
    framing: PacketFraming = "udp"
    seed: Seed = 0


# ----------------------------------------------------------------------------
# Filling a model, and errors about what a user wrote.


def validate(model_class: type[Model], mapping: Mapping[str, Any], source: str = "") -> Model:
    """``model_class`` filled from ``mapping``.

    Args:
        model_class: the settings to fill.
        mapping: keys and values as the user wrote them.
        source: origin of the mapping (a file's name), for the message.

    Raises:
        ConfigError: names each invalid key, the given value and the allowed values.
    """
    given = {key: _whole(model_class, key, value) for key, value in mapping.items()}
    try:
        return model_class.model_validate(given)
    except ValidationError as error:
        schema = _json_schema(model_class)
        findings = [
            _explain(details, schema)
            for details in error.errors(include_url=False)
            if details["type"] != "default_factory_not_called"  # for want of another setting
        ]
    where = f"{source}: " if source else ""
    # Each branch of a union reports the key. The deepest report is the most precise.
    keys = [key for key, _ in findings]
    problems = [
        problem
        for key, problem in dict.fromkeys(findings)
        if not any(other.startswith(f"{key}.") for other in keys)
    ]
    if len(problems) == 1:
        raise ConfigError(where + problems[0])
    raise ConfigError(
        f"{where}{len(problems)} settings cannot be used:\n  " + "\n  ".join(problems)
    )


def _whole(model_class: type[BaseModel], key: str, value: Any) -> Any:
    """``value``, or the integer that it is, where only integers are allowed: 1e6 is 1000000."""
    if not (isinstance(value, float) and value.is_integer() and abs(value) < 2**53):
        return value
    declared = _json_schema(model_class).get("properties", {}).get(key, {})
    kinds = {each.get("type") for each in (declared, *declared.get("anyOf", ()))}
    return int(value) if "integer" in kinds and "number" not in kinds else value


def load_toml(path: str | Path, model_class: type[Model]) -> Model:
    """``model_class`` filled from a TOML file.

    Raises:
        ConfigError: the file cannot be read, is not TOML (with the line), or a key is invalid.
    """
    return validate(model_class, read_toml(Path(path)), source=str(path))


def _json_schema(model_class: type[BaseModel]) -> dict[str, Any]:
    try:
        return model_class.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return {}  # a type that JSON schemas lack; messages are then without "allowed"


def allowed_values(model_class: type[BaseModel]) -> dict[str, str]:
    """What each key of a model may be, in the words of the errors: "an integer of at least 1"."""
    schema = _json_schema(model_class)
    properties = schema.get("properties", {})
    return {name: _describe(properties.get(name, {}), schema) for name in model_class.model_fields}


def _explain(details: ErrorDetails, schema: dict[str, Any]) -> tuple[str, str]:
    """The key of one of pydantic's errors, and a sentence about it."""
    kind = details["type"]
    if kind == "extra_forbidden":
        *parents, last = details["loc"]
        path, parent = _find(schema, tuple(parents))
        known = sorted(parent.get("properties", {}))
        key = ".".join([*path, str(last)])
        if RENAMED_KEYS.get(str(last)) in known:
            return key, f"unknown key {key!r}: it is called {RENAMED_KEYS[str(last)]!r} now."
        close = difflib.get_close_matches(str(last), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return key, f"unknown key {key!r}.{hint} Known: {', '.join(known) or 'none'}."
    path, field = _find(schema, details["loc"])
    key = ".".join(path) or "the description"
    allowed = _describe(field, schema)
    if kind == "missing":
        return key, f"{key} is missing" + (f"; give {allowed}." if allowed else ".")
    # The message of a validator, or of a discriminator, is more precise than the field's type.
    if kind in {"value_error", "union_tag_invalid", "union_tag_not_found"} or not allowed:
        return key, f"{key} = {_shown(details['input'])} cannot be used; " + (
            details["msg"].removeprefix("Value error, ").rstrip(".") + "."
        )
    return key, f"{key} = {_shown(details['input'])} cannot be used; allowed is {allowed}."


def _shown(value: object) -> str:
    return shortened(repr(value))


def shortened(text: str) -> str:
    """``text``, shortened for an error message."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _find(
    schema: dict[str, Any], location: tuple[str | int, ...]
) -> tuple[list[str], dict[str, Any]]:
    """Follow pydantic's ``location`` of an error through a JSON schema.

    Returns:
        The keys as the user wrote them, without the names of union branches that pydantic adds; and
        the part of the schema that describes the value, {} if there is none.
    """
    path: list[str] = []
    here = _resolve(schema, schema)
    for step in location:
        branches = _branches(here, schema)
        tags = [branch.get("discriminator", {}).get("mapping", {}) for branch in (here, *branches)]
        tagged = next((mapping[step] for mapping in tags if step in mapping), None)
        found = next(
            (part for branch in branches if (part := _child(branch, step)) is not None), None
        )
        if tagged is not None:
            here = _resolve({"$ref": tagged}, schema)
        elif found is not None or branches == [here]:
            path.append(str(step))
            here = _resolve(found or {}, schema)
        # Otherwise the step is the name of a branch.
    return path, here


def _child(part: dict[str, Any], step: str | int) -> dict[str, Any] | None:
    children = part if isinstance(step, int) else part.get("properties", {})
    found: dict[str, Any] | None = children.get("items" if isinstance(step, int) else step)
    return found


def _branches(part: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a union, with those of nested unions; otherwise the part itself."""
    alternatives = [*part.get("anyOf", ()), *part.get("oneOf", ())]
    if not alternatives:
        return [part]
    nested = [_resolve(each, schema) for each in alternatives]
    return [*nested, *(leaf for each in nested for leaf in _branches(each, schema))]


def _resolve(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    return part


def _describe(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a JSON schema allows, as text."""
    part = _resolve(part, schema)
    if "enum" in part or "const" in part:
        values = [repr(value) for value in part.get("enum", [part.get("const")])]
        return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)
    for union in ("anyOf", "oneOf"):
        if union in part:
            words = (_describe(each, schema) for each in part[union])
            return " or ".join(dict.fromkeys(filter(None, words)))
    kind = part.get("type", "")
    if kind in {"integer", "number"}:
        article = "an integer" if kind == "integer" else "a number"
        return article + _bounds(part)
    if kind == "array":
        return f"a list, each item {_describe(part.get('items', {}), schema) or 'anything'}"
    return {
        "string": "a path" if part.get("format") == "path" else "a string",
        "boolean": "true or false",
        "object": "a table of settings",
        "null": "nothing",
    }.get(kind, "")


def _bounds(part: dict[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    above, below = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    bounds = [
        f"{words} {limit}"
        for words, limit in (
            ("at least", low), ("above", above), ("at most", high), ("below", below)
        )
        if limit is not None
    ]  # fmt: skip
    return " " + " and ".join(bounds) if bounds else ""
