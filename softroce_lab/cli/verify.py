# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab verify`: whether what was captured keeps the rules of RoCE, and of the lab's transports."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from softroce_lab.check import report, suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.suites import Format
from softroce_lab.cli.options import Json, Junit, print_document, say
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.results import recorded
from softroce_lab.telemetry.packets import Kind

app = typer.Typer(add_completion=False)
_MTUS = (256, 512, 1024, 2048, 4096)


@app.command()
def verify(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Run directories, or their names below ./runs (latest: the newest), pcapng or "
            "pcap files.",
        ),
    ] = None,
    as_json: Json = False,
    junit_file: Junit = None,
    of: Annotated[
        Format, typer.Option("--format", help="Packet format of the traffic.")
    ] = Format.AUTO,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="rule=NAME",
            help="Check only this rule, checker or pattern, such as rule=rc.*; may be repeated.",
        ),
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, metavar="N", help="Decode N packets of the evidence in full.")
    ] = 0,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of a host where the capture was taken; may be repeated.",
        ),
    ] = None,
    retry_count: Annotated[
        int, typer.Option(min=0, max=7, help="retry_cnt of the queue pairs.")
    ] = 7,
    path_mtu: Annotated[
        int | None,
        typer.Option(help="Path MTU of the queue pairs; default: inferred from packets."),
    ] = None,
    list_rules: Annotated[
        bool, typer.Option("--list", help="List the rules and the clauses that they check.")
    ] = False,
) -> None:
    """Check captures against every rule; show the packets that prove a violation.

    Exit code 0: no rule fails; 1: a rule fails; 2: a file cannot be read or written.
    """
    wanted = suites.chosen([_rule(each) for each in only or ()])
    if list_rules:
        _list(wanted, as_json=as_json)
        return
    if not files:
        hint = "name a run directory (latest: the newest), a pcapng or a pcap file"
        raise UserError("no capture is named", hint=hint)
    options = Options(retry_count, _path_mtu(path_mtu), tuple(_gid(each) for each in at or ()))
    checked, failures = [], []
    for given in files:
        try:
            path = _found(given)
            checked += _check(path, options, wanted, of)
            failures += [
                UserError("the run recorded this capture, and it is gone", file=str(missing))
                for missing in suites.missing_captures_of(path)
            ]
        except UserError as error:
            failures.append(error)
    if junit_file is not None:
        try:
            report.write_junit(junit_file, checked, failures)
        except UserError as error:  # the verdicts are still worth printing
            failures.append(error)
    _report(checked, failures, show=show, as_json=as_json)
    _warn(checked, at or ())
    for failure in failures:
        say(failure)
    if failures:
        raise typer.Exit(ExitCode.USAGE)
    if any(each.failed for each in checked):
        raise typer.Exit(ExitCode.FAILED)


def _found(path: Path) -> Path:
    """A file or directory, or the run directory that is called so. UserError."""
    return path if path.exists() or path.suffix else recorded.find(str(path))


def _check(
    path: Path, options: Options, wanted: frozenset[str], of: Format
) -> list[report.Checked]:
    """A capture, or all of a run directory."""
    captures = suites.captures_of(path)
    checked = []
    for each in captures:
        evidence = suites.evidence_of(each, options)
        name = str(path if len(captures) == 1 else each)
        verdicts = tuple(suites.check(evidence, wanted, of))
        checked.append(report.Checked(name, evidence, verdicts))
    return checked


def _warn(checked: Sequence[report.Checked], at: Sequence[str]) -> None:
    """Print the reasons why reports cover less than they seem to."""
    for each in checked:
        packets = each.evidence.packets
        if not np.any(packets["kind"] == Kind.ROCE):
            what = "there is no RoCEv2 packet in it, so hardly a rule was tried"
            say(f"{each.name}: {what}")
            continue
        for address, raw in zip(at, each.evidence.options.at, strict=True):
            gid = np.frombuffer(raw, np.uint8)
            ends = (packets["source"] == gid, packets["destination"] == gid)
            if not any(np.any(np.all(end, axis=1)) for end in ends):
                what = f"no packet is from {address} or to it, so --at says nothing"
                say(f"{each.name}: {what}")


def _report(
    checked: Sequence[report.Checked], failures: Sequence[UserError], *, show: int, as_json: bool
) -> None:
    if as_json:
        files = [report.document(each) for each in checked]
        print_document(files=files, errors=[str(each) for each in failures])
        return
    for each in checked:
        for line in report.lines(each, show):
            print(line)


def _list(wanted: frozenset[str], *, as_json: bool) -> None:
    rules = [rule for rule in suites.rules() if rule.name in wanted]
    if as_json:
        listed = [{"rule": each.name, "says": each.states, "clause": each.clause} for each in rules]
        print_document(rules=listed)
        return
    for rule in rules:
        print(f"{rule.name}\n    {rule.states}\n    {rule.clause}")


def _rule(choice: str) -> str:
    key, _, name = choice.partition("=")
    if key != "rule" or not name:
        raise UserError(f"--only {choice}: expected rule=NAME", hint="such as rule=rc.*")
    return name


def _gid(text: str) -> bytes:
    """The GID of an address: of IPv4 the mapped one."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise UserError(f"{text!r} is no address", hint="such as 10.0.0.1 or fd00::1") from None
    if isinstance(address, ipaddress.IPv4Address):
        return bytes(10) + b"\xff\xff" + address.packed
    return address.packed


def _path_mtu(value: int | None) -> int | None:
    if value is not None and value not in _MTUS:
        raise UserError(f"{value} is no path MTU", hint=f"one of {', '.join(map(str, _MTUS))}")
    return value
