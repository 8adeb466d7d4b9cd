# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of runs for the tests of `lab bench recovery`, made up."""

SEEDS = range(1, 11)


def rows(transport, loss="random-1%", *, scale=1.0, workload="ring-64KiB", **more):
    """A row a seed; the messages of a seed take 1000 ns to 2000 ns, times `scale`."""
    return [
        {
            "workload": workload, "loss": loss, "transport": transport, "seed": seed,
            "verdict": "passed", "reasons": [], "measured": 1000,
            "tail_ns": [int(scale * (2000 + 10 * seed - n)) for n in range(125)],
            "base_rtt_ns": 100, "makespan_ns": int(scale * (10**6 + 10**5 * seed)),
            "packets_sent": 10_000, "spurious_retransmissions": 0, "control_packets": 1000,
            "bytes": 40_000_000, "control_bytes": 400_000, "repairs": 30, **more,
        }
        for seed in SEEDS
    ]  # fmt: skip


def tail(p99_ns, p999_ns):
    """Of a run whose 1000 messages have these percentiles, alone and with runs like it."""
    return [p999_ns] * 3 + [p99_ns] * 122
