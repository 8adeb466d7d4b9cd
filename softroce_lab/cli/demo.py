# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab demo`: send a real file through a lossy fabric, and prove that it arrived.

`lab demo failover` lets a NIC die instead.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion, tables
from softroce_lab.cli.experiment_options import (
    Captured,
    RequireFaithful,
    Snap,
    ThisTransport,
    WithCapture,
)
from softroce_lab.cli.modes import Mode
from softroce_lab.cli.options import Json, LogTo, Quiet, Xdp, XdpMode, print_json, saying
from softroce_lab.cli.running.experiment import RunScreen
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment import demo as experiment
from softroce_lab.experiment.capturing import NOTHING, Wanted, summary
from softroce_lab.experiment.demo import DEPTH
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.figure_table import FIGURES
from softroce_lab.experiment.workload_table import Line, cell
from softroce_lab.statistics import footnotes
from softroce_lab.telemetry.capture_figures import SNAP_BYTES

app = typer.Typer(add_completion=False)


class Clock(enum.StrEnum):
    """Where the demo runs."""

    AUTO = "auto"
    REAL = "real"
    VIRTUAL = "virtual"


class Story(enum.StrEnum):
    """What is shown."""

    FILE = "file"
    FAILOVER = "failover"


class _Command(WithCapture):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        Mode(
            "failover",
            lambda params: params["story"] == Story.FAILOVER,
            ("file", "transport", "faults", "source", "destination", "message", "depth", "capture",
             "snap", "ipv6", "save", "require_faithful", "log_to"),
        ),
        Mode("file", lambda params: params["story"] == Story.FILE, ("steps", "dies", "back")),
        Mode("nothing captured", lambda params: params["capture"] == ["none"], ("snap",)),
        Mode(
            "--clock virtual",
            lambda params: params["clock"] == Clock.VIRTUAL,
            ("ipv6", "xdp", "log_to"),
        ),
    )  # fmt: skip


@app.command(cls=_Command)
def demo(
    story: Annotated[
        Story,
        typer.Argument(
            help="file: a file crosses a lossy fabric; failover: a NIC dies in the middle of a "
            "training step, with SHIFT and without."
        ),
    ] = Story.FILE,
    file: Annotated[Path | None, typer.Option(help="File to send; default: libLLVM.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the losses.")] = None,
    transport: ThisTransport = None,
    topology: Annotated[
        str | None,
        typer.Option(
            help="A topology file, or a built-in topology; default: leaf-spine; of failover: "
            "dual-rail.",
            autocompletion=completion.topologies,
        ),
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            help="Add a fault profile to the topology's faults: a file, or a built-in one; none: "
            "no profile; may be repeated. Default on leaf-spine: spine-loss-1pct."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Sending host; default: the first.")
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option("--to", help="Receiving host; default: one farthest from the sender."),
    ] = None,
    message: Annotated[
        str, typer.Option("--size", "-s", metavar="BYTES", help="Size of a message.")
    ] = "1MiB",
    depth: Annotated[int, typer.Option(min=1, max=256, help="Outstanding messages.")] = DEPTH,
    capture: Captured = None,
    snap: Snap = SNAP_BYTES,
    ipv6: Annotated[bool, typer.Option("--ipv6", "-6", help="Use IPv6.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the received file to this path.")] = None,
    clock: Annotated[
        Clock, typer.Option(help="auto: a lab; a simulation if no lab can come up.")
    ] = Clock.AUTO,
    steps: Annotated[
        int, typer.Option(min=1, max=100_000, help="Training steps of failover.")
    ] = failover.Options.steps,
    dies: Annotated[
        int | None, typer.Option(help="The step in which the NIC dies; default: a third.")
    ] = None,
    back: Annotated[
        int | None, typer.Option(help="The step in which it is back; default: two thirds.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the lab and of the run.")] = "demo",
    xdp: Xdp = XdpMode.AUTO,
    require_faithful: RequireFaithful = False,
    log_to: LogTo = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Send a file over CSA-UD and ud_rto through a leaf-spine fabric, 1 % lost at its spines.

    On leaf-spine, it captures leaf1->spine1; --capture none disables this capture.
    """
    if story is Story.FAILOVER:
        chosen = failover.Options(
            topology=topology or failover.Options.topology,
            name=name,
            steps=steps,
            dies_at=dies,
            repaired_at=back,
            seed=failover.Options.seed if seed is None else seed,
            mode=xdp.value,
        )
        _failover(chosen, clock, as_json=as_json, quiet=quiet)
        return
    topology = topology or "leaf-spine"
    options = experiment.Options(
        file=file,
        transports=tuple(transport or experiment.TRANSPORTS),
        topology=topology,
        faults=_profiles(faults, topology),
        source=source,
        destination=destination,
        name=name,
        seed=seed,
        mode=xdp.value,
        capture=_captured(capture, topology, snap),
        snap_bytes=snap,
        message_bytes=_message_bytes(message),
        depth=depth,
        ip_version=6 if ipv6 else 4,
        save=save,
        clock=clock.value,
        event_log=log_to,
    )
    with RunScreen(quiet=quiet) as screen:
        outcome = experiment.run(options, screen)
    if as_json:
        print_json(outcome.document())
    else:
        _print(outcome)
    if not outcome.verified or (require_faithful and not outcome.faithful):
        raise typer.Exit(ExitCode.FAILED)


def _captured(options: list[str] | None, topology: str, snap_bytes: int) -> Wanted | None:
    """As chosen; by default a link on the flow's path, None, on the default topology alone."""
    if options:
        return Wanted(tuple(name for name in options if name != "none"), snap_bytes)
    return None if topology == "leaf-spine" else NOTHING


def _profiles(options: list[str] | None, topology: str) -> tuple[str, ...]:
    if options:
        return tuple(name for name in options if name != "none")
    return ("spine-loss-1pct",) if topology == "leaf-spine" else ()


def _message_bytes(text: str) -> int:
    size = units.parse_bytes(text)
    if not 0 < size <= 1 << 28:
        raise UserError(f"--size {text}: a message has 1B to 256MiB", hint="such as 1MiB")
    return size


def _print(outcome: experiment.Outcome) -> None:
    rows = outcome.rows()
    _print_figures(rows, outcome.clock)
    for row in rows:
        for reason in row["fidelity"]["reasons"] if row["fidelity"] else ():
            print(f"  {row['transport']} not faithful: {reason}")
        for reason in row["reasons"]:
            print(f"  {row['transport']} failed: {reason}")
    for each in outcome.left_out:
        print(f"  {each.note}")
    _print_losses(outcome)
    for each in outcome.captures:
        print(f"\n{summary(each)}")
    print(f"\n{outcome.directory}")


def _print_figures(rows: list[dict[str, Any]], clock: str) -> None:
    shown = [FIGURES[key] for key in (*_SHOWN, *(["fidelity"] if clock == "real" else []))]
    lines = [Line(each.title, [cell(each, [row]) for row in rows]) for each in shown]
    if clock == "virtual":
        lines.append(Line("clock", [clock] * len(rows)))
    tables.show_figures([row["transport"] for row in rows], lines)
    for note in footnotes(each for line in lines for each in line.cells):
        print(f"  {note}")


def _print_losses(outcome: experiment.Outcome) -> None:
    if len(outcome.telling) > 1 and outcome.lost_any_first:
        same = {True: "the same", False: "NOT the same", None: "perhaps not the same"}
        who = "every transport"
        if len(outcome.telling) < len(outcome.runs):
            who = ", ".join(run.transport for run in outcome.telling)
        print(f"\nFirst attempts lost: {same[outcome.same_fates]} packets for {who}.")
    if outcome.idle_rules:
        print(f"\nRules that did nothing: {', '.join(outcome.idle_rules)}")


_SHOWN = (
    "goodput_bps", "delivered", "fct_p50_ns", "fct_p99_ns", "packets_sent", "injected_drops",
    "emulator_drops", "retransmitted", "spurious_retransmissions", "verified",
)  # fmt: skip


# --- `lab demo failover` -------------------------------------------------------------------------

_MS = 1e6


def _failover(options: failover.Options, clock: Clock, *, as_json: bool, quiet: bool) -> None:
    outcomes, where = failover.run(options, clock.value, saying(quiet))
    run_dir = None
    try:
        run_dir = str(failover.write(outcomes, options, where))
    finally:  # the result is known, also where it cannot be kept
        if as_json:
            print_json(failover.document(outcomes) | {"run_dir": run_dir})
        else:
            print("\n".join([*failover_lines(outcomes), "", run_dir or "not kept"]))
    if not outcomes[-1].right:
        raise typer.Exit(ExitCode.FAILED)


def failover_lines(outcomes: list[failover.Outcome]) -> list[str]:
    """A table of both jobs, then what happened and when."""
    width = max(len(label) for label, _ in _ROWS) + 2
    heads = ["with SHIFT" if each.shift else "without SHIFT" for each in outcomes]
    made = [" " * width + "".join(f"{head:>18}" for head in heads)]
    for label, show in _ROWS:
        made.append(f"{label:{width}}" + "".join(f"{show(each):>18}" for each in outcomes))
    for head, each in zip(heads, outcomes, strict=True):
        made += [f"  {head}, {error}" for error in each.errors]
        if each.moments:
            made += ["", "time since the NIC died, host and peer, transition"]
        for moment in failover.first_events(each):
            event = moment.event
            ends = f"{moment.host}-{moment.peer}"
            step = f"{event.before} -> {event.after}"
            made.append(f"{moment.at_ns / _MS:>10.1f} ms  {ends}  {step}: {event.why}")
    return made


def _time(name: str) -> Callable[[failover.Outcome], str]:
    def show(outcome: failover.Outcome) -> str:
        value = getattr(outcome, name)
        return "-" if value is None else units.format_duration(value)

    return show


def _model(outcome: failover.Outcome) -> str:
    if outcome.errors:
        return "not finished"
    return "right" if set(outcome.checksums) == {outcome.reference} else "WRONG"


_ROWS: list[tuple[str, Callable[[failover.Outcome], str]]] = [
    ("steps done", lambda o: f"{o.steps_done} of {o.steps}"),
    ("p50 step", _time("step_p50_ns")),
    ("goodput gap", _time("gap_ns")),
    ("detection", _time("detection_ns")),
    ("failed to good completion", _time("failover_ns")),
    ("requests consumed", lambda o: f"{o.total('consumed'):,}"),
    ("requests resubmitted", lambda o: f"{o.total('resubmitted'):,}"),
    ("notifications", lambda o: f"{o.notifications:,} of {o.expected:,}"),
    ("once and in order", lambda o: "yes" if o.in_order else "NO"),
    ("model (SHA-256)", _model),
]
