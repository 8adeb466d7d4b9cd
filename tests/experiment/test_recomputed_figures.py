# SPDX-License-Identifier: GPL-2.0-or-later
"""A run directory's figures, made anew from its own tables."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab.experiment import run, spec
from softroce_lab.experiment.figure_table import CONTROL, RETRANSMITTED, SPURIOUS, data_packets
from softroce_lab.experiment.reporter import Silent

LOSSY = """
name: lossy
topology: leaf-spine
workload: {kind: ring-all-reduce, bytes: 1MiB, message: 64KiB, dtype: float32}
transports: [csa_ud, sdr_sr, irn, rc]
faults: [{name: loss, links: "leaf*->spine*", loss: random 2%, key: identity}]
seeds: [1, 2]
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recomputed")
    (folder / "lossy.yaml").write_text(LOSSY)
    return run.run(spec.load(folder / "lossy.yaml"), Silent(), under=folder).directory


def rank(values, share):
    """Of all values, the smallest that this share of them does not exceed."""
    return int(np.sort(values)[math.ceil(share * len(values)) - 1])


def recomputed(directory, name):
    transport, seed = name.split("/")

    def rows(table):
        file = directory / f"{table}.parquet"
        this_run = [("transport", "==", transport), ("seed", "==", int(seed))]
        return pq.read_table(file, filters=this_run).to_pydict()

    hosts = json.loads((directory / "stats.json").read_text())["runs"][name].values()

    def counted(*counters):
        return sum(host["counters"].get(each, 0) for host in hosts for each in counters)

    messages, events, repairs = map(rows, ("messages", "events", "repairs"))
    ends_ns = np.maximum(messages["received_ns"], messages["completed_ns"])
    takes_ns = ends_ns - messages["posted_ns"]
    arrived_ns = np.array(repairs["arrived_ns"])
    repair_ns = (arrived_ns - repairs["dropped_ns"])[arrived_ns >= 0]
    drops = [each for each in zip(events["source"], events["event"], strict=True)
             if each == ("injector", "drop")]  # fmt: skip
    size = sum(messages["bytes"])
    links = json.loads((directory / "links.json").read_text())["runs"][name]
    assert sum(messages["retransmitted"]) == counted(*RETRANSMITTED) or transport == "rc"
    assert sum(messages["duplicates"]) <= counted(*SPURIOUS)
    return {
        "messages": len(takes_ns),
        "delivered": messages["status"].count(0),
        "bytes": size,
        "makespan_ns": int(ends_ns.max()),
        "goodput_bps": 8 * 10**9 * size // int(ends_ns.max()),
        "fct_p50_ns": rank(takes_ns, 0.5),
        "fct_p99_ns": rank(takes_ns, 0.99),
        "fct_p999_ns": rank(takes_ns, 0.999),
        "repairs": len(repair_ns),
        "unrepaired": int((arrived_ns < 0).sum()),
        "repair_p50_ns": rank(repair_ns, 0.5),
        "repair_p99_ns": rank(repair_ns, 0.99),
        "injected_drops": len(drops),
        "queue_drops": sum(link["wire"].get("dropped_by_queue", 0) for link in links),
        "marked": sum(link["wire"].get("marked", 0) for link in links),
        "packets_sent": sum(data_packets(host["counters"]) for host in hosts),
        "parity_packets": counted("tx_parity"),
        "restored": counted("rx_restored"),
        "needless_retransmissions": counted("rx_needless"),
        "control_packets": counted(*CONTROL),
        "control_bytes": counted("tx_control_bytes"),
        "retransmitted": counted(*RETRANSMITTED),
        "spurious_retransmissions": counted(*SPURIOUS),
    }


@pytest.mark.parametrize("transport", ["csa_ud", "sdr_sr", "irn", "rc"])
@pytest.mark.parametrize("seed", [1, 2])
def test_figures_follow_from_the_tables(directory, transport, seed):
    name = f"{transport}/{seed}"
    runs = json.loads((directory / "manifest.json").read_text())["runs"]
    (stated,) = [each for each in runs if each["run"] == name]
    figures = recomputed(directory, name)
    assert figures["repairs"] > 0
    assert figures == {key: stated[key] for key in figures}
