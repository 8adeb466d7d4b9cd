# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run`: an experiment or a sweep; or, without running it, what it would do."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from softroce_lab.cli import completion, typed
from softroce_lab.cli.experiment_options import (
    Captured,
    Changes,
    DryRun,
    RequireFaithful,
    Seeds,
    Snap,
    Transports,
    WithCapture,
    overrides_of,
)
from softroce_lab.cli.modes import Mode, flag, refuse
from softroce_lab.cli.options import Jobs, Json, Quiet, Xdp, XdpMode
from softroce_lab.cli.running import experiment, preview, sweep
from softroce_lab.cli.running.gates import Junit
from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.experiment.sweep.campaign import Options
from softroce_lab.inputs.yaml_source import Data
from softroce_lab.results.recorded import SWEEPS
from softroce_lab.telemetry.capture_figures import SNAP_BYTES
from softroce_lab.telemetry.rundir import RUNS
from softroce_lab.transports import registry

app = typer.Typer(add_completion=False)


class Clock(enum.StrEnum):
    """Where an experiment runs."""

    VIRTUAL = "virtual"
    REAL = "real"
    BOTH = "both"


_OF_EXPERIMENTS = (
    "clock", "seed", "transport", "name", "faults", "changes", "capture", "snap",
    "plan", "goal", "require_faithful", "xdp",
)  # fmt: skip
_OF_SWEEPS = ("only", "jobs", "scheduler", "table", "keep_runs", "fresh")


class _Command(WithCapture):
    """A command that rejects options without effect in the chosen mode."""

    modes = (
        *WithCapture.modes,
        Mode("--list", flag("show"), (
            "file", "clock", "seed", "name", "faults", "changes", "capture", "output", "check",
            "plan", "goal", "require_faithful", "xdp", "junit", "quiet", *_OF_SWEEPS,
        )),
        Mode("--dry-run", flag("check"), (
            "plan", "output", "keep_runs", "fresh", "xdp", "junit", "quiet",
        )),
        Mode("--plan", flag("plan"), (
            "clock", "transport", "name", "faults", "capture", "output", "require_faithful", "xdp",
            "junit", "quiet",
        )),
        Mode("without --plan", lambda params: not params["plan"], ("goal",)),
        Mode("--clock both", lambda params: params["clock"] == Clock.BOTH, (
            "name", "faults", "capture",
        )),
    )  # fmt: skip


@app.command(cls=_Command)
def run(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="An experiment or a sweep: a file, or a built-in one by name.",
            autocompletion=completion.runnable,
        ),
    ] = None,
    clock: Annotated[
        Clock | None,
        typer.Option(
            help="virtual: simulate; real: bring up the fabric on this machine, run, take it down; "
            "both: do each, and compare. Default: as the file says."
        ),
    ] = None,
    seed: Seeds = None,
    transport: Transports = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Do only these runs of a sweep, such as seed=3 or 'transport=*-best'; may be "
            "repeated.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the lab and of the run.")] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE",
            help="Use the faults of this profile instead of the file's: a file, or the name of a "
            "built-in one; none: no faults. May be repeated: all of them.",
            autocompletion=completion.profiles,
        ),
    ] = None,
    changes: Changes = None,
    capture: Captured = None,
    snap: Snap = SNAP_BYTES,
    jobs: Jobs = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run a sweep on the Dask cluster at tcp://HOST:PORT."),
    ] = None,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep the directory of every run of a sweep.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Repeat all runs of a sweep, finished ones included.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Parent of the run directories; default: runs, or sweeps.",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a sweep's table as Markdown."),
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--list",
            help="List experiments, sweeps and transports; with --transport: the settings that a "
            "file can give it.",
        ),
    ] = False,
    check: DryRun = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print who sends how much to whom, and when; run nothing."),
    ] = False,
    goal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --plan: also write the workload as a GOAL file."),
    ] = None,
    require_faithful: RequireFaithful = False,
    xdp: Xdp = XdpMode.AUTO,
    junit: Junit = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment over each of its transports and seeds, or a sweep of many experiments.

    A sweep runs all combinations of its parameters. Repeat the command to resume it.
    """  # fmt: skip
    if show:
        _list(transport, as_json=as_json)
        return
    if file is None:
        what = "no experiment or sweep is named"
        raise UserError(what, hint="a file, or a name: lab run --list")
    path, is_sweep = sweep_spec.find_file(file)
    shown = {"dry_run": check, "as_json": as_json, "quiet": quiet}
    if is_sweep:
        hint = "--only transport=NAME and --only seed=N choose runs; the rest is for experiments"
        refuse(context, "a sweep", _OF_EXPERIMENTS, hint)
        options = Options(output or SWEEPS, tuple(only or ()), jobs, scheduler, keep_runs, fresh)
        sweep.run(path, options, table, junit, **shown)
        return
    hint = "it is for sweeps; --transport and --seed choose the runs of an experiment"
    refuse(context, "an experiment", _OF_SWEEPS, hint)
    overrides = _overrides(changes, transport, {"name": name, "clock": clock, "seeds": seed,
                                                "faults": faults})  # fmt: skip
    if plan:
        preview.show_traffic(path, overrides, goal, as_json=as_json)
        return
    running = experiment.Running(output or RUNS, junit, xdp.value, require_faithful, **shown)
    if clock is Clock.BOTH:
        from softroce_lab.cli.running import both_clocks  # late: it needs the real clock

        both_clocks.run(path, overrides, transport, running)
        return
    loaded = experiment.load(path, overrides, transport)
    if loaded.clock == "virtual":
        refuse(context, "the virtual clock", ("xdp",))
    experiment.run(loaded, Wanted(tuple(capture or ()), snap), running)


def _overrides(
    changes: Sequence[str] | None, transports: Sequence[str] | None, options: Mapping[str, Any]
) -> list[tuple[str, Data]]:
    """The keys of the file that --set and other options replace. UserError."""
    given = {key: value for key, value in options.items() if value is not None}
    by = {"seeds": "--seed", "transports": "--transport"}
    replaced = [*given, *(["transports"] if transports else [])]
    overrides = overrides_of(changes, {key: by.get(key, f"--{key}") for key in replaced})
    if given.get("clock") is Clock.BOTH:
        del given["clock"]
    if "faults" in given:
        given["faults"] = [each for each in given["faults"] if each != "none"]
    return overrides + [(key, _plain(value)) for key, value in given.items()]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.StrEnum) else value


def _list(transports: Sequence[str] | None, *, as_json: bool) -> None:
    if transports:
        preview.print_settings(transports, as_json=as_json)
        return
    preview.print_ready(
        {"experiment": spec.shipped(), "sweep": sweep_spec.shipped()}, as_json=as_json
    )
    if not as_json:
        known = ", ".join(registry.known())
        print(f"\ntransports: {known}; a policy of one's own: FILE:CLASS; LABEL= before either")
        print(f"knobs and options of one: {typed.name()} run --list --transport NAME")
