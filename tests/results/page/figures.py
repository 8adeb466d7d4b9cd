# SPDX-License-Identifier: GPL-2.0-or-later
"""What a page must show: read from the files of a run directory, without the code of reports."""

import json

import numpy as np
import pyarrow.parquet as pq

from softroce_lab import units


def grouped(number):
    """1234 as 1,234."""
    return f"{number:,}"


def verdicts(directory):
    """Rows of the table of verdicts, without what `lab verify` finds."""
    rows = []
    for run in manifest(directory)["runs"]:
        verified = {True: "yes", False: "NO", None: "no bytes were carried"}[run["verified"]]
        delivered = f"{grouped(run['delivered'])} of {grouped(run['messages'])}"
        fidelity = (run["fidelity"] or {}).get("verdict", "virtual clock: always")
        rows.append([run["run"], run["verdict"], delivered, verified, fidelity])
    return rows


def counts(directory):
    """Of the table of figures the lines of counts: sums over the seeds, by transport."""
    titles = {"data packets sent": "packets_sent", "injected drops": "injected_drops",
              "retransmitted": "retransmitted", "spurious": "spurious_retransmissions"}  # fmt: skip
    runs = manifest(directory)["runs"]
    names = dict.fromkeys(run["transport"] for run in runs)
    return {
        title: [grouped(sum(r[key] for r in runs if r["transport"] == name)) for name in names]
        for title, key in titles.items()
    }


def percentiles(directory):
    """p50, p99, p99.9 (nearest rank) of each transport: of a single seed, without marks."""
    table = pq.read_table(directory / "messages.parquet").to_pydict()
    rows = []
    for name in dict.fromkeys(table["transport"]):
        of = [at for at, each in enumerate(table["transport"]) if each == name]
        done = [at for at in of if table["status"][at] == 0]
        taken = sorted(table["completed_ns"][at] - table["posted_ns"][at] for at in done)
        at = [taken[int(np.ceil(share * len(taken))) - 1] for share in (0.5, 0.99, 0.999)]
        rows.append([*map(units.format_duration, at)])
    return rows


def links(directory, run):
    """Frames and drops of each directed link of a run."""
    found = json.loads((directory / "links.json").read_text())["runs"][run]
    return {
        each["name"]: [grouped(each["received"]), grouped(each["injected_drops"])] for each in found
    }


def drops(directory, run):
    """Losses by rules of a run's data packets, those of `rc` among them."""
    table = pq.read_table(directory / "events.parquet").to_pydict()
    names = [f"{t}/{s}" for t, s in zip(table["transport"], table["seed"], strict=True)]
    rows = zip(names, table["event"], table["packet_kind"], strict=True)
    return sum(row == (run, "drop", kind) for row in rows for kind in ("data", "other"))


def manifest(directory):
    """The manifest."""
    return json.loads((directory / "manifest.json").read_text())
