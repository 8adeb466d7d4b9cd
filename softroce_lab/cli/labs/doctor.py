# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab doctor`: what this machine can do for a lab."""

from __future__ import annotations

import dataclasses
import json

import typer

from softroce_lab.cli.options import Json
from softroce_lab.errors import ExitCode
from softroce_lab.fabric import doctor as examiner
from softroce_lab.fabric.observe import describe

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    as_json: Json = False,
) -> None:
    """Test every capability that a lab needs; exit with 3 if a required one is missing."""
    findings = examiner.examine()
    healthy = all(finding.found for finding in findings if finding.required)
    virtual = any(each.capability == examiner.NATIVE_MODULE and each.found for each in findings)
    if as_json:
        document = {"schema_version": describe.SCHEMA_VERSION, "healthy": healthy}
        document["virtual_clock"] = virtual
        listed = [dataclasses.asdict(finding) for finding in findings]
        print(json.dumps(document | {"capabilities": listed}, indent=1))
    else:
        for finding in findings:
            _print(finding)
        if virtual and not healthy:
            print("No lab comes up here, but the virtual clock works: lab run FILE --clock virtual")
    if not healthy:
        raise typer.Exit(ExitCode.LACKING)


def _print(finding: examiner.Finding) -> None:
    missing = "MISSING" if finding.required else "absent"
    state = "ok" if finding.found else missing if finding.tried else "?"
    print(f"{state:8} {finding.capability:24} {finding.detail}")
    if finding.tried and not finding.found:
        output = {"for": finding.why, "without": finding.without, "get": finding.how}
        for word, text in output.items():
            if text:
                print(f"{'':8}   {word}: {text}")
