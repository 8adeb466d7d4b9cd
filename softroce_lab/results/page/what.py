# SPDX-License-Identifier: GPL-2.0-or-later
"""What was run, the fabric with its faults, the verdicts, and the table of figures."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from softroce_lab.check import suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.suites import Format
from softroce_lab.check.verdict import Outcome
from softroce_lab.errors import LabError
from softroce_lab.experiment.hosts.program_words import fate, rnic
from softroce_lab.faults import lines
from softroce_lab.results import fabric, listing
from softroce_lab.results.page import html
from softroce_lab.results.recorded import Recorded, Run, name_of, programs_of
from softroce_lab.statistics import median_interval, spread_name
from softroce_lab.topology import marks, svg

_MOST_NODES = 400  # of a drawing
_LEAST_SCALE = 0.75  # of a drawing that is wider than the page; below it is scrolled
_MOST_CAPTURE_BYTES = 64 << 20


def what(recorded: Recorded) -> str:
    """Facts, and the picture."""
    rows = listing.facts_to_share(recorded)
    facts = html.table("The experiment", ("what", "value"), rows)
    return html.section("run", "What was run", facts, _fabric(recorded))


def _fabric(recorded: Recorded) -> str:
    try:
        plan = fabric.plan(recorded)
    except LabError as error:
        return html.paragraph(f"The fabric cannot be drawn: {error.what}.", kind="soft")
    found = marks.marks(plan.faults, lines.texts)
    tale = [f"{text}: {links}" for text, links in marks.legend(plan, found)]
    alternative = "; ".join(marks.summary(plan, found)) or "no faults"
    if len(plan.nodes) > _MOST_NODES:
        note = f"{len(plan.nodes):,} nodes are too many for a drawing."
        return html.paragraph(note) + html.items(tale)
    drawing = svg.render(plan, found)
    picture = base64.b64encode(drawing.encode()).decode()
    least = round(_LEAST_SCALE * svg.width(drawing))
    return (
        "<figure><figcaption><strong>The fabric.</strong> Links with a fault are drawn thick "
        "and have its text; dashed ones were down. Hosts are the lowest row. A rate and a delay "
        "that most links have are only below the drawing.</figcaption>"
        '<div class="fabric" tabindex="0" role="region" aria-label="The fabric">'
        f'<img alt="{html.text(alternative)}" style="min-width: {least}px" '
        f'src="data:image/svg+xml;base64,{picture}"></div>'
        f"</figure>{html.details('The faults in words', html.items(tale or ['none']))}"
    )


def programs(recorded: Recorded) -> str:
    """Of runs of programs: each command, how it ended, and what it printed; "" without any."""
    rows, printed = [], []
    for run in recorded.runs:
        for host, each in programs_of(run).items():
            name = f"{name_of(run)} {host}"
            rnics = "; ".join(_rnic_at(host, one) for one in each.get("processes", ())) or "none"
            rows.append((name, each["run"], fate(each), f"{each['roce_packets']:,}", rnics))
            output = f"<pre>{html.text(each['output'] or 'nothing')}</pre>"
            printed.append(html.details(f"{name} printed", output))
            variables = [f"{key}={value}" for key, value in each.get("environment", {}).items()]
            if variables:
                text = f"<pre>{html.text(chr(10).join(variables))}</pre>"
                printed.append(html.details(f"{name}: variables", text))
    if not rows:
        return ""
    head = ("run and host", "command", "result", "RoCE packets", "RNICs")
    return html.section("programs", "Programs", html.table("Programs", head, rows), *printed)


def _rnic_at(host: str, process: Mapping[str, Any]) -> str:
    """With the host, if it is another one than the command's."""
    where = process.get("host", host)
    return rnic(process) if where == host else f"{where}: {rnic(process)}"


def figures(recorded: Recorded) -> str:
    """The table of `lab run`; with six seeds or more with intervals in place of ranges."""
    names, lines, notes = listing.table(recorded, median_interval)
    spread = spread_name(Counter(run["transport"] for run in recorded.runs).values())
    table = html.table(
        f"Median of the seeds [{spread}]; counts are sums",
        ("figure", *names),
        [(line.title, *line.cells) for line in lines],
    )
    return html.section("figures", "Figures", table, *map(html.paragraph, notes))


def verdicts(recorded: Recorded) -> str:
    """A row a run, and why some failed."""
    costs = (recorded.manifest.get("environment") or {}).get("costs") or {}
    rows = [
        (*_verdict(recorded, run), (costs.get(name_of(run)) or {}).get("cpu_s", "-"))
        for run in recorded.runs
    ]
    head = (
        "run",
        "verdict",
        "delivered",
        "bytes verified",
        "faithful",
        "lab verify",
        "CPU seconds",
    )
    problems = html.items(listing.problems(recorded))
    return html.section("verdicts", "Verdicts", html.table("Runs", head, rows), problems)


def _verdict(recorded: Recorded, run: Run) -> Sequence[str]:
    fidelity = (run.get("fidelity") or {}).get("verdict", "virtual clock: always")
    if programs_of(run):
        cells = "not seen", "not seen", fidelity, _checked(recorded, run)
        return name_of(run), run["verdict"], *cells
    verified = {True: "yes", False: "NO", None: "no bytes were carried"}[run.get("verified")]
    delivered = f"{run['delivered']:,} of {run['messages']:,}"
    return name_of(run), run["verdict"], delivered, verified, fidelity, _checked(recorded, run)


def _checked(recorded: Recorded, run: Run) -> str:
    """What `lab verify` finds in the run's capture."""
    name = (run.get("capture") or {}).get("file")
    if name is None:
        return "not captured"
    path = recorded.path / str(name)
    if not path.is_file():
        return "the capture is missing"
    if path.stat().st_size > _MOST_CAPTURE_BYTES:
        return f"large capture: lab verify {path}"
    try:
        evidence = suites.evidence_of(path, Options(7, None, ()))
        found = suites.check(evidence, suites.chosen(()), Format.AUTO)
    except LabError as error:
        return error.what
    failed = [verdict.rule for verdict in found if verdict.outcome is Outcome.FAIL]
    return "FAILS: " + ", ".join(failed) if failed else f"{len(found)} rules, none fails"
