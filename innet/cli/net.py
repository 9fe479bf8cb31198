"""``innet net``: the same all-reduce over real packets, on a Mininet network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.allreduce import with_parameters
from innet.cli.options import (
    CodecOption,
    ConfigOption,
    DensityOption,
    DepthOption,
    EngineOption,
    InputOption,
    JsonOption,
    OutputOption,
    PartialAfterOption,
    ProgramOption,
    RacksOption,
    SeedOption,
    SetOption,
    ValuesOption,
    WorkersOption,
)
from innet.core.errors import InputError, UnknownNameError

_TOPOLOGIES = ("star", "tree", "fat-tree", "dumbbell")

# Parameters that say something of a network for a program of one's own; the others, of all-reduces.
_OWN = {"topology", "p4", "rules", "switch", "workers", "engine", "pcap", "cli"}
_ONLY_BMV2 = {"simple_switch", "thrift_port", "log_level"}
_ONLY_TRAINING = {"model", "epochs", "out_dir"}
_NO_TRAINING = {"size", "density", "input_files", "rounds", "output"}


def net(
    context: typer.Context,
    *,
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            help="star: all at one switch; tree: racks below a root; fat-tree: of --ports ports; "
            "dumbbell: two switches, two jobs; or with --p4 a file in the JSON of p4lang's "
            "tutorials. All but the star run --program tree, unless told otherwise.",
        ),
    ] = "star",
    p4: Annotated[
        Path | None,
        typer.Option(help="Your own program, P4 or BMv2 JSON: no all-reduce, but --cli."),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option("--commands", help="With --p4: control plane, simple_switch_CLI's commands."),
    ] = None,
    switch: Annotated[
        str | None, typer.Option(help="builtin or bmv2 (simple_switch). [default: builtin]")
    ] = None,
    workers: WorkersOption = None,
    codec: CodecOption = None,
    codec_parameters: SetOption = None,
    program: ProgramOption = None,
    racks: RacksOption = None,
    depth: DepthOption = None,
    ports: Annotated[
        int | None, typer.Option(help="Of each switch of a fat-tree. [default: 4]")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Jobs at once, of --workers each. [default: 1; of a dumbbell: 2]"),
    ] = None,
    values_per_packet: ValuesOption = None,
    window: Annotated[
        int | None,
        typer.Option(help="Packets of a worker under way. [default: all slots; bmv2: 64]"),
    ] = None,
    framing: Annotated[str | None, typer.Option(help="udp or raw Ethernet. [default: udp]")] = None,
    size: Annotated[
        int | None, typer.Option(help="Elements of each gradient. [default: 100000]")
    ] = None,
    density: DensityOption = None,
    input_files: InputOption = None,
    rounds: Annotated[
        int | None, typer.Option(help="All-reduces, one after the other. [default: 1]")
    ] = None,
    seed: SeedOption = None,
    loss: Annotated[
        float | None, typer.Option(help="Share of packets lost at the workers. [default: 0]")
    ] = None,
    duplicate: Annotated[
        float | None, typer.Option(help="Share of packets that travel twice. [default: 0]")
    ] = None,
    reorder: Annotated[
        float | None, typer.Option(help="Share of packets held back. [default: 0]")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Of every link, Mbit/s. [default: no limit]")
    ] = None,
    delay: Annotated[
        float | None, typer.Option(help="Of every link, one way, ms. [default: 0]")
    ] = None,
    delay_by: Annotated[
        str | None,
        typer.Option(help="netem or workers. [default: netem, where the kernel has it]"),
    ] = None,
    engine: EngineOption = None,
    simple_switch: Annotated[
        Path | None, typer.Option(help="BMv2's executable. [default: the one on PATH]")
    ] = None,
    thrift_port: Annotated[
        int | None, typer.Option(help="Of simple_switch's control plane. [default: 9090]")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="Of simple_switch: off, trace, ... [default: off]")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds until a packet is repeated. [default: 0.2]")
    ] = None,
    give_up: Annotated[
        float | None, typer.Option(help="Seconds until a worker gives up. [default: 30]")
    ] = None,
    partial_after: PartialAfterOption = None,
    train: Annotated[
        bool, typer.Option("--train", help="Train a model instead of one all-reduce.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="With --train: which one. [default: digits-cnn]")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="With --train: passes over the samples. [default: 15]")
    ] = None,
    out_dir: Annotated[
        Path, typer.Option("--out", help="With --train: where record and plot go.")
    ] = Path("innet-out"),
    pcap: Annotated[
        Path | None, typer.Option(help="Write captures of all interfaces to this folder.")
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(
            help="Draw the network into this file (.png, .pdf or .svg), and do nothing else."
        ),
    ] = None,
    cli: Annotated[
        bool, typer.Option("--cli", help="Leave Mininet's command line open afterwards.")
    ] = False,
    output: OutputOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sum gradients over a Mininet network (needs root), one process per worker."""
    from innet.cli import net_runs
    from innet.cli.settings import read_settings

    file = Path(topology) if topology.endswith(".json") else None
    if file is None and topology not in _TOPOLOGIES:
        known = [*_TOPOLOGIES, "a file ending in .json"]
        raise UnknownNameError("topology", topology, known)
    own = p4 is not None or file is not None
    options = _given(context)
    if own:
        _check_own(options, topology, switch)
    else:
        _check_all_reduce(options, train=train)
    if draw is None:
        from innet.mininet.network import require_root

        require_root("a Mininet network")
    if own:
        if not cli:
            raise InputError(
                "a program of your own is started for Mininet's command line; add --cli."
            )
        net_runs.own_program(
            p4,
            topology=file,
            hosts=workers,
            switch=switch,
            rules=rules,
            pcap=pcap,
            options={
                "builtin": {"engine": engine},
                "bmv2": {
                    "simple_switch": simple_switch,
                    "thrift_port": thrift_port,
                    "log_level": log_level,
                },
            },
        )
        return
    from innet.mininet.settings import NetSettings

    if topology == "dumbbell" and config is None and not train:
        jobs = jobs or 2
    settings = read_settings(
        NetSettings,
        config,
        {
            "switch": switch,
            "workers": workers,
            "codec": codec,
            "program": program or ("tree" if topology != "star" else None),
            "racks": racks,
            "depth": depth,
            "topology": topology if topology != "star" else None,
            "ports": ports,
            "jobs": jobs,
            "values_per_packet": values_per_packet,
            "window": window,
            "framing": framing,
            "size": size,
            "density": density,
            "input": tuple(input_files) if input_files else None,
            "rounds": rounds,
            "seed": seed,
            "loss": loss,
            "duplicate": duplicate,
            "reorder": reorder,
            "rate": rate,
            "link_delay": delay,
            "delay_by": delay_by,
            "engine": engine,
            "simple_switch": simple_switch,
            "thrift_port": thrift_port,
            "log_level": log_level,
            "timeout": timeout,
            "give_up": give_up,
            "partial_after": partial_after,
            "pcap": pcap,
        },
    )
    _check_switch(options, settings.switch)
    if codec_parameters:
        changed = with_parameters(settings.codec, codec_parameters)
        settings = settings.model_copy(update={"codec": changed})
    if draw is not None:
        from innet.experiments.plots import draw_plan

        draw_plan(settings.shared_plan(), draw)
    elif train:
        given = {"model": model, "epochs": epochs}
        net_runs.train(settings, given, out_dir, as_json=as_json, cli=cli)
    else:
        net_runs.all_reduce(settings, output, as_json=as_json, cli=cli)


def _given(context: typer.Context) -> dict[str, str]:
    """Parameters that were given as options, and the options' names."""
    found = {}
    for each in context.command.params:
        source = context.get_parameter_source(each.name) if each.name else None
        if each.name and source is not None and source.name == "COMMANDLINE":
            found[each.name] = each.opts[0]
    return found


def _check_own(given: Mapping[str, str], topology: str, switch: str | None) -> None:
    """Raise InputError if an option has no effect on a network for a program of one's own."""
    others = given.keys() - _OWN - _ONLY_BMV2
    _refuse(
        given,
        others,
        "no effect on a program of your own, for which there is no all-reduce; rates and delays of "
        "links are a topology file's to say",
    )
    if topology.endswith(".json"):
        _refuse(given, {"workers"}, "no effect, as the topology file says which hosts there are")
    elif topology != "star":
        raise InputError(
            f"--topology {topology}: a program of your own runs on a star, or on the network of a "
            "topology file (.json)."
        )
    _check_switch(given, switch or "builtin")


def _check_all_reduce(given: Mapping[str, str], *, train: bool) -> None:
    """Raise InputError if an option has no effect on an all-reduce, or on a training."""
    _refuse(given, {"rules"}, "no effect without a program of your own; name it with --p4")
    if train:
        _refuse(given, _NO_TRAINING, "no effect on a training")
    else:
        _refuse(given, _ONLY_TRAINING, "no effect without --train")


def _check_switch(given: Mapping[str, str], kind: str) -> None:
    """Raise InputError if an option of another kind of switch was given."""
    if kind == "bmv2":
        _refuse(given, {"engine"}, "no effect on simple_switch")
    else:
        _refuse(given, _ONLY_BMV2, "no effect without --switch bmv2")


def _refuse(given: Mapping[str, str], names: Collection[str], why: str) -> None:
    """Raise InputError if one of ``names`` was given."""
    if options := [option for name, option in given.items() if name in names]:
        raise InputError(f"{', '.join(options)}: {why}.")
