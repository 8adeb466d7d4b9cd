# SPDX-License-Identifier: GPL-2.0-or-later
"""The model's random variables, drawn one by one: what its distributions are compared with."""

import numpy as np


def repeated_ns(stream, runs, chunks, loss, inject_ns, rto_ns, rtt_ns):
    """T = max X_i + RTT of so many messages."""
    times = np.empty(runs)
    begins = np.arange(1, chunks + 1) * inject_ns
    for run in range(runs):
        sent = stream.geometric(1 - loss, chunks)
        times[run] = (begins + (rto_ns + inject_ns) * (sent - 1)).max() + rtt_ns
    return times


def decoded(stream, scheme, k, m, loss):
    """Whether a submessage can be decoded."""
    lost = stream.random(k + m) < loss
    if scheme == "mds":
        return lost.sum() <= m
    groups = np.concatenate([np.arange(k) % m, np.arange(m)])
    return np.bincount(groups[lost], minlength=m).max() <= 1


def coded_ns(stream, runs, scenario, scheme):
    """Completion times of an erasure-coded message."""
    k, m = scenario.data_chunks, scenario.parity_chunks
    whole, rest = divmod(scenario.chunks, k)
    sizes = [(k, m)] * whole + ([(rest, -(-rest * m // k))] if rest else [])
    sent_ns = scenario.inject_ns * sum(map(sum, sizes))
    rto_ns = scenario.rtt_ns * (1 + scenario.alpha)
    times = np.empty(runs)
    for run in range(runs):
        failed = sum(
            data for data, parity in sizes
            if not decoded(stream, scheme, data, parity, scenario.loss)
        )  # fmt: skip
        times[run] = sent_ns + scenario.rtt_ns
        if failed:
            (again_ns,) = repeated_ns(
                stream, 1, failed, scenario.loss, scenario.inject_ns, rto_ns, scenario.rtt_ns
            )
            times[run] += scenario.beta * scenario.rtt_ns + again_ns
    return times


def within(times, predicted, deviations=4.5):
    """Whether the drawn times agree with a distribution: mean, median and p99."""
    error = times.std(ddof=1) / times.size**0.5
    if abs(times.mean() - predicted.mean_ns) > deviations * error + 1:
        return False
    for share in (0.5, 0.9, 0.99):
        # The number of runs up to a quantile is binomial; steps may lie on either side.
        slack = deviations * (share * (1 - share) / times.size) ** 0.5
        at_ns = predicted.quantile_ns(share)
        if not (times <= at_ns + 1).mean() > share - slack:
            return False
        if not (times < at_ns - 1).mean() < share + slack:
            return False
    return True
