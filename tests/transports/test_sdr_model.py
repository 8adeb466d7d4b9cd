# SPDX-License-Identifier: GPL-2.0-or-later
"""`sdr_sr` takes as long as SDR-RDMA's model of selective repeat says (arXiv 2505.05366).

M chunks of N packets; a packet is lost with probability p, a chunk with P = 1 - (1-p)^N. Chunk i
is done X_i = i*T_inj + (RTO + T_inj)*(Y_i - 1) after the beginning, where Y_i is how often it is
sent; the message takes T = max X_i + RTT.

In the paper Y_i is geometric, as if a chunk had to arrive whole at once. Here its packets may
arrive with different transmissions, so that P(Y_i <= k) = (1-p^k)^N: the same for k = 1, and less
likely to need a third one.
"""

import dataclasses
import statistics

import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests.transports.pair_rig import ADDRESSES, MACS, MILLISECOND_NS, QKEY, config, threshold

RTT_NS = 25 * MILLISECOND_NS  # 3750 km
PACKET_NS = 1_000
MTU, N = 4096, 16
T_INJ_NS = N * PACKET_NS
RUNS = 60
TIMING = dataclasses.replace(
    DEFAULT_TIMING,
    initial_rtt_ns=RTT_NS,
    t_min_ns=MILLISECOND_NS,
    t_max_ns=1000 * MILLISECOND_NS,
    ack_delay_most_ns=0,
    eager_rounds=1000,  # the model's timer does not back off
    keepalive_interval_ns=500 * MILLISECOND_NS,
)


def measured_ns(transport, chunks, loss, seed):
    """How long a message takes from its first packet to its acknowledgement."""
    ends = [
        config(address, transport=transport, framing="uc_immediate", path_mtu=MTU,
               window_packets=1 << 14, initial_rtt_ns=RTT_NS)
        for address in ADDRESSES
    ]  # fmt: skip
    for end in ends:
        TIMING.apply(end)
    pair = _native.Pair(*ends, seed)
    sides = [pair.side(which) for which in (0, 1)]
    for which, side in enumerate(sides):
        other = sides[1 - which]
        side.set_qkey(QKEY)
        side.connect(ADDRESSES[1 - which], MACS[1 - which], other.data_qp, other.recovery_qp, QKEY)
        pair.cable(which).delay_ns = RTT_NS // 2
        pair.cable(which).packet_time_ns = PACKET_NS if which == 0 else 0
    pair.cable(0).loss = threshold(loss)
    memory = np.zeros(chunks * N * MTU, np.uint8)
    keys = [side.register_memory(memory.ctypes.data, memory.size, 1) for side in sides]
    sides[1].post_receive(0, (1, 2, 3), keys[1], 0, memory.size, 1)
    sides[0].post_send(0, (1, 2, 3), keys[0], 0, memory.size, 2)
    for _ in range(100_000):
        sides[1].poll_completions()
        done = sides[0].poll_completions()
        if done:
            assert done[0].status == 0
            return done[0].completed_ns - done[0].first_ns
        pair.run(100 * RTT_NS)
    raise AssertionError("no end in sight")


def model_ns(chunks, loss, rto_ns):
    """Mean and standard deviation of T, from its distribution."""
    begins = np.arange(1, chunks + 1) * T_INJ_NS
    times = np.arange(0, 40 * RTT_NS, T_INJ_NS)
    tries = np.floor((times[:, None] - begins) / (rto_ns + T_INJ_NS)) + 1
    within = ((1 - loss ** np.maximum(tries, 0)) ** N).prod(axis=1)
    mean = (1 - within).sum() * T_INJ_NS
    second = 2 * (times * (1 - within)).sum() * T_INJ_NS
    return mean + RTT_NS, (second - mean**2) ** 0.5


@pytest.mark.parametrize(("chunks", "loss"), [(64, 1e-4), (64, 1e-3), (16, 1e-2)])
def test_the_mean_is_that_of_the_model(chunks, loss):
    times = [measured_ns("sdr_sr", chunks, loss, seed) for seed in range(1, RUNS + 1)]
    mean, deviation = model_ns(chunks, loss, 3 * RTT_NS)
    assert abs(statistics.fmean(times) - mean) < 3 * deviation / RUNS**0.5 + RTT_NS / 50
