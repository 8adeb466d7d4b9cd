# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab perf`: perftest's tests between two hosts of a lab, with its flags and its columns."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from softroce_lab import units, writable
from softroce_lab.cli import capture_options
from softroce_lab.cli.capture_options import Captured, CaptureFile, Snap, WithCapture
from softroce_lab.cli.modes import IN_A_LAB, Mode, flag
from softroce_lab.cli.options import Json, Lab, LogTo, Xdp, XdpMode, beside_file, saying
from softroce_lab.cli.programs.foreign import PerftestOptions
from softroce_lab.cli.programs.pair_options import (
    Client,
    Events,
    ExchangePort,
    LongQuiet,
    RxDepth,
    Server,
    TemporaryLab,
)
from softroce_lab.errors import UserError
from softroce_lab.experiment.capturing import capturing
from softroce_lab.experiment.forecast import idle_rules
from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.experiment.observation import Observation
from softroce_lab.perftest import lab as perf_lab
from softroce_lab.perftest import report as perf_report
from softroce_lab.perftest import tests as experiment
from softroce_lab.perftest.end import Address
from softroce_lab.perftest.figures import Bandwidth, Latency
from softroce_lab.perftest.lab import Place, Where
from softroce_lab.perftest.options import TESTS, Options, PerfTest
from softroce_lab.perftest.report import Style
from softroce_lab.telemetry import event_log
from softroce_lab.telemetry.capture_figures import SNAP_BYTES

app = typer.Typer(add_completion=False)


class ConnectionType(enum.StrEnum):
    """Of a queue pair."""

    RC = "RC"
    UC = "UC"
    UD = "UD"


class _Command(WithCapture, PerftestOptions):
    """A command with perftest's flags and those of the lab."""

    modes = (
        *WithCapture.modes,
        Mode("--all", flag("all_sizes"), ("size",)),
        IN_A_LAB,
    )


@app.command(cls=_Command)
def perf(
    test: Annotated[str, typer.Argument(metavar="TEST", help=", ".join(TESTS))],
    client: Client = None,
    server: Server = None,
    size: Annotated[
        str | None,
        typer.Option("-s", "--size", help="Message size: 4096, 4K, 4KiB [65536; latency: 2]."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("-n", "--iters", help="Number of messages [1000; write_bw: 5000].")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "-D", "--duration", help="Duration in seconds, instead of a number of messages."
        ),
    ] = None,
    qps: Annotated[int, typer.Option("-q", "--qp", help="Number of queue pairs.")] = 1,
    tx_depth: Annotated[
        int | None, typer.Option("-t", "--tx-depth", help="Outstanding requests [128; latency: 1].")
    ] = None,
    rx_depth: RxDepth = 512,
    cq_mod: Annotated[
        int | None,
        typer.Option("-Q", "--cq-mod", help="Requests per completion [100; beyond 8 KiB: 1]."),
    ] = None,
    connection: Annotated[
        ConnectionType,
        typer.Option("-c", "--connection", case_sensitive=False, help="Transport service."),
    ] = ConnectionType.RC,
    mtu: Annotated[
        int | None, typer.Option("-m", "--mtu", help="Path MTU; default: the largest.")
    ] = None,
    all_sizes: Annotated[
        bool, typer.Option("-a", "--all", help="Run all sizes, 2 to 2^23.")
    ] = False,
    bidirectional: Annotated[
        bool, typer.Option("-b", "--bidirectional", help="Measure both directions at once.")
    ] = False,
    events: Events = False,
    qp_timeout: Annotated[
        int, typer.Option("-u", "--qp-timeout", help="ACK timeout: 4.096 us * 2^N.")
    ] = 14,
    port: ExchangePort = 18515,
    gid_index: Annotated[
        int, typer.Option("-x", "--gid-index", min=0, help="GID index at a kernel host.")
    ] = perf_lab.GID_INDEX,
    ipv6: Annotated[
        bool, typer.Option("--ipv6", help="Use IPv6; between soft hosts only.")
    ] = False,
    gbits: Annotated[
        bool, typer.Option("--report_gbits", help="Report Gb/sec instead of MB/sec.")
    ] = False,
    out_json: Annotated[bool, typer.Option("--out_json", help="Also write a JSON file.")] = False,
    out_json_file: Annotated[
        Path | None,
        typer.Option("--out_json_file", help="Name of the JSON file; default: perftest_out.json."),
    ] = None,
    file: TemporaryLab = None,
    lab: Lab = None,
    xdp: Xdp = XdpMode.AUTO,
    capture: Captured = None,
    capture_file: CaptureFile = None,
    snap: Snap = SNAP_BYTES,
    log_to: LogTo = None,
    as_json: Json = False,
    quiet: LongQuiet = False,
) -> None:
    """Run perftest's TEST from CLIENT, which posts, to SERVER.

    It runs in the lab that is up, or else in a temporary lab of two hosts.
    """
    size_bytes = None if size is None else _bytes(size)
    options = Options(
        test, size_bytes, all_sizes, iterations, duration, qps, tx_depth, rx_depth, cq_mod,
        connection.value, mtu, ipv6, bidirectional, events, qp_timeout,
    )  # fmt: skip
    PerfTest.of(options, 4096)  # reports errors before a lab comes up
    file_out = out_json_file or (Path("perftest_out.json") if out_json else None)
    if file_out is not None:
        writable.check(file_out, "--out_json_file FILE")
    wanted = capture_options.wanted(capture, snap, capture_file)
    log = None if log_to is None else event_log.create(log_to)
    style = Style(gbits, gid_index=gid_index)
    print_line = (lambda _: None) if as_json else functools.partial(print, flush=True)
    where = Where(beside_file(lab, file), file, "perf", xdp.value)
    suits = functools.partial(perf_lab.check_gids, gid_index=gid_index, ipv6=ipv6)
    with perf_lab.chosen(where, client, server, saying(quiet), suits) as place:
        hosts = place.client.name, place.server.name
        with capturing(place.lab, wanted, hosts) as captured:
            observation = Observation(place.lab)
            document = _run(place, port, options, style, log, print_line)
            observed = observation.end({}, striped=False, hosts=hosts)
    document["fidelity"] = observed.fidelity.document()
    if not observed.fidelity.faithful:
        saying(quiet)(str(observed.fidelity))
    document["idle_rules"] = observed.idle_rules
    links = [dataclasses.asdict(each) for each in observed.links]
    for note in idle_rules.notes(observed.idle_rules, place.lab.plan, [links]):
        saying(quiet)(note)
    if captured is not None:
        saying(quiet)(captured.summary())
        document["capture"] = captured.document()
    if log is not None:
        saying(quiet)(f"{event_log.totals(log)} in {log_to}")
    text = json.dumps(document, indent=1)
    if file_out is not None:
        _write(file_out, text)
    if as_json:
        print(text)


def _run(
    place: Place,
    port: int,
    options: Options,
    style: Style,
    log: Path | None,
    say: Callable[[str], Any],
) -> dict[str, Any]:
    ip_version: Literal[4, 6] = 6 if options.ipv6 else 4
    test = PerfTest.of(options, path_mtu_bytes(place.lab.plan.mtu, ip_version))
    say(perf_report.preamble(test, style))

    def connected(client: list[Address], server: list[Address]) -> None:
        say(perf_report.addresses("local", client, test))
        say(perf_report.addresses("remote", server, test))
        say(f"{perf_report.RULE}\n{perf_report.header(test, style)}")

    found: list[Bandwidth | Latency] = []
    with measures(place, port, style.gid_index, ip_version, log) as measure:
        for size in test.sizes:
            found.append(measure(test, size, None if found else connected))
            say(perf_report.row(found[-1], style))
    for line in (perf_report.RULE, *perf_report.footnotes(found)):
        say(line)
    return perf_report.document(test, style, found)


@contextlib.contextmanager
def measures(
    place: Place, port: int, gid_index: int, ip_version: Literal[4, 6], log: Path | None = None
) -> Iterator[experiment.Measure]:
    """What runs a test between two hosts, be they soft or kernel ones."""
    lab, client, server = place.lab, place.client, place.server
    if "kernel" not in (client.kind, server.kind):
        names = client.name, server.name
        with experiment.ends(lab, *names, ip_version=ip_version, event_log=log) as both:
            yield both.measure
        return
    # Imported late: most labs have no kernel host.
    from softroce_lab.perftest import kernel as perf_kernel

    with perf_kernel.measures(
        lab, client, server, port=port, gid_index=gid_index, event_log=log
    ) as measure:
        yield measure


def _bytes(text: str) -> int:
    """A number, with perftest's K or M or a unit of ours behind it."""
    if found := re.fullmatch(r"(\d+)([KkMm]?)", text):
        return int(found[1]) << {"": 0, "K": 10, "M": 20}[found[2].upper()]
    return units.parse_bytes(text)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
