"""``innet switch``: packet tests, captures, measurements and a look inside compiled programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from innet.cli import switch_service
from innet.cli.options import (
    BatchOption,
    EngineOption,
    JsonOption,
    PriorityQueuesOption,
    compiled_programs,
    completing,
)
from innet.cli.output import err, out, say_json, write_text
from innet.core.errors import InputError

app = typer.Typer(
    help="Compiled P4 programs on the built-in switch: test, replay, measure, explain.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_WIDEST = 10_000

ProgramArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM",
        help="JSON from p4c (plain, gzip, xz), or a program's name such as slots-32.",
        autocompletion=completing(compiled_programs),
    ),
]
CommandsOption = Annotated[
    Path | None,
    typer.Option(
        "--commands", "-c", help="File with simple_switch_CLI's commands for the control plane."
    ),
]
PortOption = Annotated[
    int | None, typer.Option("--port", "-p", help="Port at which the capture's packets arrive.")
]


@app.command("stf")
def stf(
    *,
    program: ProgramArgument,
    tests: Annotated[
        list[Path], typer.Argument(metavar="TEST.stf ...", help="Packet tests in p4c's format.")
    ],
    engine: EngineOption = "jit",
    priority_queues: PriorityQueuesOption = 1,
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Time between packets, such as 10us, so that they wait in the egress queues. "
            "Otherwise nothing waits, unless the test has a wait with a duration.",
        ),
    ] = None,
    simple_switch: Annotated[
        bool,
        typer.Option(
            "--simple-switch", help="Run on the installed simple_switch; PATH says which."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show the output of commands.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run packet tests of p4c's simple test framework; exit status 1 when one fails."""
    from innet.cli.switch_output import stf_document, stf_failures, stf_summary
    from innet.core.numbers import nanoseconds
    from innet.tools import stf as runner
    from innet.tools import stf_syntax
    from innet.tools.files import engine_named, open_document, program_in

    chosen = engine_named(engine)
    between = None if gap is None else nanoseconds(gap, "--gap")
    if simple_switch and between is not None:
        raise InputError(
            "--gap is for the built-in switch, whose time is simulated; with --simple-switch, "
            "write wait statements with a duration into the test"
        )
    document = open_document(program)
    loaded = program_in(document, program)
    read = [stf_syntax.read(path) for path in tests]
    if simple_switch:
        outcomes = [runner.run_on_simple_switch(document, each, priority_queues) for each in read]
    else:
        outcomes = [runner.run(loaded, each, chosen, priority_queues, between) for each in read]
    if as_json:
        say_json([stf_document(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            for line, text in outcome.printed if verbose else ():
                _say(out, f"{outcome.test}:{line}: {text}")
            for text in stf_failures(outcome):
                _say(out, text)
        out.print(stf_summary(outcomes))
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)


@app.command("cli")
def cli(
    *,
    thrift_ip: Annotated[str, typer.Option(help="Where the switch is.")] = "localhost",
    thrift_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Where its control plane listens.")
    ] = 9090,
) -> None:
    """Send commands to a running switch: `innet simple-switch`, or a real simple_switch.

    The commands are those of simple_switch_CLI, from the terminal or a file (`< commands.txt`).
    """
    from innet.bmv2.shell import run

    run(thrift_ip, thrift_port)


@app.command("replay")
def replay_captures(
    *,
    program: ProgramArgument,
    captures: Annotated[
        list[Path] | None,
        typer.Argument(metavar="IN.pcap ...", help="pcap or pcapng, plain or gzip."),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="An empty or new folder.")],
    ports: Annotated[
        list[str] | None,
        typer.Option(
            "--port",
            "-p",
            metavar="PORT[=FILE]",
            help="Where packets arrive: all, or those of FILE. Otherwise the file's name says so "
            "(p3_in.pcap), or a pcapng's interfaces do. Repeatable.",
        ),
    ] = None,
    commands: CommandsOption = None,
    engine: EngineOption = "jit",
    priority_queues: PriorityQueuesOption = 1,
    timed: Annotated[
        bool,
        typer.Option(
            "--timed",
            help="Packets wait in the egress queues from the times at which they were captured; "
            "what is written has the times at which they leave.",
        ),
    ] = False,
    batch: BatchOption = 4096,
    as_json: JsonOption = False,
) -> None:
    """Play captures through a program; write p3_out.pcap and so on, a capture for each port."""
    from innet.cli.switch_output import (
        ReplayProgress,
        inputs_of,
        queue_summary,
        replay_document,
        replay_remarks,
        replay_summary,
    )
    from innet.switch import Switch
    from innet.tools.files import engine_named, open_program, read_commands
    from innet.tools.replay import Replay

    inputs = inputs_of(captures or [], ports or [])
    control = read_commands(commands)
    loaded, chosen = open_program(program), engine_named(engine)
    with Replay(inputs, folder) as replay:
        switch = Switch(loaded, chosen, priority_queues=priority_queues)
        control.run(switch)
        with ReplayProgress(err, inputs) as progress:
            result = replay.run(switch, batch, progress, timed=timed)
    if as_json:
        say_json(replay_document(result, switch))
    else:
        out.print(replay_summary(result))
        if result.queues:
            out.print(queue_summary(result.queues))
        for line in replay_remarks(result, switch, folder):
            _say(out, line)


@app.command("bench")
def bench(
    *,
    program: ProgramArgument,
    commands: CommandsOption = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            "--pcap", help="Packets to run; by default random packets that fit the parser."
        ),
    ] = None,
    port: PortOption = None,
    count: Annotated[int, typer.Option("--packets", min=1)] = 65536,
    batch: BatchOption = 4096,
    seed: Annotated[int, typer.Option(help="Seed of random packets.", min=0)] = 0,
    priority_queues: PriorityQueuesOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure both engines, and simple_switch where it is installed, on the same packets."""
    from innet.cli.switch_output import (
        bench_document,
        bench_remarks,
        bench_table,
        wait_for_rates,
    )
    from innet.tools import bench as benching
    from innet.tools.files import open_document, program_in, read_commands
    from innet.tools.replay import Input

    document = open_document(program)
    loaded, control = program_in(document, program), read_commands(commands)
    if capture is None:
        packets = benching.fuzzed_packets(loaded, count, seed)
    else:
        packets = benching.captured_packets(Input(capture, port), count)
    rates = benching.measure(
        document, loaded, packets, control, batch, priority_queues=priority_queues
    )
    result = wait_for_rates(err, rates)
    if as_json:
        say_json(bench_document(loaded.name, len(packets), batch, result))
        return
    out.print(bench_table(result))
    for line in bench_remarks(result):
        _say(out, line)


@app.command("explain")
def explain(
    *,
    program: ProgramArgument,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show each step of packets through the program.")
    ] = False,
    packets: Annotated[
        list[str] | None,
        typer.Option(
            "--packet",
            metavar="PORT:HEX[@TIME]",
            help="A packet to trace; repeatable. With its time, such as @1.5ms, it waits in the "
            "egress queues.",
        ),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option("--pcap", help="A capture to trace. Its name has the port, as for replay."),
    ] = None,
    port: PortOption = None,
    commands: CommandsOption = None,
    priority_queues: PriorityQueuesOption = 1,
    timed: Annotated[
        bool,
        typer.Option(
            "--timed", help="The capture's packets wait in the egress queues from their times."
        ),
    ] = False,
    source: Annotated[
        Path | None, typer.Option(help="Write the Python source of the jit engine to this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a program, or the steps of packets through it."""
    from innet.cli import switch_explain
    from innet.switch.inspect import emitted_source
    from innet.tools import explain as explaining
    from innet.tools.files import open_program, read_commands
    from innet.tools.replay import Input

    loaded = open_program(program)
    of_packets = (capture, port, commands)
    if trace or packets or timed or any(each is not None for each in of_packets):
        traffic = None if capture is None else Input(capture, port)
        control = read_commands(commands)
        switch_explain.show(
            loaded, packets or [], traffic, control, priority_queues, timed=timed, as_json=as_json
        )
        return
    if source is not None:
        write_text(source, emitted_source(loaded))
    document = explaining.explain(loaded)
    if as_json:
        say_json(document)
    else:
        # Elsewhere than on a terminal, lines stay whole.
        console = out if out.is_terminal else Console(width=_WIDEST, emoji=False)
        console.print(switch_explain.tree(document))


app.command("serve")(switch_service.serve)
app.command("top")(switch_service.top)


def _say(console: Any, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
