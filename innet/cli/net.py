"""``innet net``: the same all-reduce over real packets, on a Mininet network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from innet.cli.allreduce import CodecOption, SetOption, with_parameters
from innet.cli.output import err, out, say_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from topo.allreduce import NetResult, NetSettings
    from topo.topologies import SwitchKind

_HOW_TO_LOOK = (
    "The network is up. `switch s1 show_tables` asks switch s1, in the words of simple_switch_CLI; "
    "`help` lists what else there is; `exit` takes the network down."
)


def net(
    *,
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            help="star: all at one switch; tree: racks below a root (--program tree); or with --p4 "
            "a file in the JSON of p4lang's tutorials.",
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
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="How many workers. [default: 4]")
    ] = None,
    codec: CodecOption = None,
    codec_parameters: SetOption = None,
    program: Annotated[
        str | None, typer.Option(help="P4 program; `innet p4 list`. [default: slots]")
    ] = None,
    racks: Annotated[
        int | None, typer.Option(help="Switches that workers are at, for trees. [default: 2]")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Levels of switches. [default: 2]")] = None,
    values_per_packet: Annotated[
        int | None, typer.Option(help="32, 64 or 256. [default: 64]")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(help="Packets of a worker under way. [default: all slots; bmv2: 64]"),
    ] = None,
    framing: Annotated[str | None, typer.Option(help="udp or raw Ethernet. [default: udp]")] = None,
    size: Annotated[
        int | None, typer.Option(help="Elements of each gradient. [default: 100000]")
    ] = None,
    density: Annotated[
        float | None, typer.Option(help="Share of elements that are not zero. [default: 1]")
    ] = None,
    input_files: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help="NumPy files, one array per worker; repeatable."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="All-reduces, one after the other. [default: 1]")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of gradients, hashes and faults. [default: 0]")
    ] = None,
    loss: Annotated[
        float | None, typer.Option(help="Share of packets lost at the workers. [default: 0]")
    ] = None,
    duplicate: Annotated[
        float | None, typer.Option(help="Share of packets that travel twice. [default: 0]")
    ] = None,
    reorder: Annotated[
        float | None, typer.Option(help="Share of packets held back. [default: 0]")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Of every link, Mbit/s.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="Of the built-in switch: jit or interpret. [default: jit]")
    ] = None,
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
        Path | None, typer.Option(help="Draw the network into this PNG file, and do nothing else.")
    ] = None,
    cli: Annotated[
        bool, typer.Option("--cli", help="Leave Mininet's command line open afterwards.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the sum to this .npy file.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML; options given here win.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Sum gradients over a Mininet network (needs root), one process per worker."""
    from innet.cli.settings import read_settings
    from innet.errors import InputError, UnknownNameError

    file = Path(topology) if topology.endswith(".json") else None
    if file is None and topology not in ("star", "tree"):
        raise UnknownNameError("topology", topology, ["star", "tree", "a file ending in .json"])
    if draw is None:
        from topo.network import require_root

        require_root("a Mininet network")
    if p4 is not None or file is not None:
        if not cli:
            raise InputError(
                "a program of your own is started for Mininet's command line; add --cli."
            )
        from topo.own import run as run_own

        run_own(
            p4,
            _open_cli,
            topology=file,
            hosts=2 if workers is None else workers,
            switch=_kind(switch or "builtin"),
            rules=rules,
            switch_options=_switch_options(
                pcap,
                switch,
                engine,
                {
                    "simple_switch": simple_switch,
                    "thrift_port": thrift_port,
                    "log_level": log_level,
                },
            ),
        )
        return
    from topo import allreduce

    settings = read_settings(
        allreduce.NetSettings,
        config,
        {
            "switch": switch,
            "workers": workers,
            "codec": codec,
            "program": program or ("tree" if topology == "tree" else None),
            "racks": racks,
            "depth": depth,
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
            "engine": engine,
            "simple_switch": simple_switch,
            "thrift_port": thrift_port,
            "log_level": log_level,
            "timeout": timeout,
            "give_up": give_up,
            "pcap": pcap,
        },
    )
    if codec_parameters:
        changed = with_parameters(settings.codec, codec_parameters)
        settings = settings.model_copy(update={"codec": changed})
    if draw is not None:
        from innet.report.topology import draw_plan

        draw_plan(settings.plan(), draw)
        return
    if train:
        given = {"model": model, "epochs": epochs}
        _train(settings, given, out_dir, _open_cli if cli else None, as_json=as_json)
        return
    from innet.experiments.outputs import check_writable
    from innet.report.tables import report_table

    if output is not None:
        check_writable(output)

    def show(result: NetResult) -> None:
        if output is not None:
            import numpy as np

            np.save(output, result.sum)
        if as_json:
            say_json(result.report.model_dump(mode="json"))
        else:
            out.print(report_table(result.report))

    with err.status("") as status:

        def inspect(network: Any, result: NetResult) -> None:
            status.stop()
            show(result)
            if cli:
                _open_cli(network)

        allreduce.run(settings, watch=lambda what: status.update(f"{what} ..."), inspect=inspect)


def _open_cli(network: Any) -> None:
    from topo.network import SwitchCLI

    err.print(_HOW_TO_LOOK, highlight=False)
    SwitchCLI(network)


def _kind(name: str) -> SwitchKind:
    from innet.errors import UnknownNameError

    if name not in ("builtin", "bmv2"):
        raise UnknownNameError("kind of switch", name, ["builtin", "bmv2"])
    return cast("SwitchKind", name)


def _switch_options(
    pcap: Path | None, switch: str | None, engine: str | None, bmv2: dict[str, Any]
) -> dict[str, Any]:
    """Arguments of the nodes for a program of one's own; those of the other kind are left out."""
    if pcap is not None:
        pcap.mkdir(parents=True, exist_ok=True)
    common = {"pcap": None if pcap is None else pcap.resolve()}
    own = bmv2 if switch == "bmv2" else {"engine": engine}
    return common | {name: value for name, value in own.items() if value is not None}


def _train(
    settings: NetSettings,
    given: dict[str, Any],
    out_dir: Path,
    inspect: Callable[[Any], None] | None,
    *,
    as_json: bool,
) -> None:
    from datetime import UTC, datetime

    from innet.cli.settings import read_settings
    from innet.config import TrainSettings
    from innet.report.curves import draw_training
    from innet.report.progress import ProgressDisplay
    from innet.report.training import training_table
    from topo import training

    chosen = read_settings(TrainSettings, None, given)
    with ProgressDisplay(err) as display:
        result = training.run(
            settings,
            chosen,
            out_dir,
            created=datetime.now(UTC),
            watch=display,
            draw=draw_training,
            inspect=inspect,
        )
    for note in result.notes:
        err.print(note, markup=False)
    if as_json:
        say_json(result.record.model_dump(mode="json"))
        return
    out.print(training_table(result.record))
    for what, path in {"record": result.record_path, "plot": result.plot_path}.items():
        if path is not None:
            out.print(f"{what}: {path}", highlight=False, soft_wrap=True)
