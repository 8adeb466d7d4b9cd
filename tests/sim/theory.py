# SPDX-License-Identifier: GPL-2.0-or-later
"""What theory expects of transports; pure, in whole picoseconds or in units of the caller's."""

import math

import numpy as np

PS = 10**12
ETHERNET_IPV4_UDP_BTH_ICRC = 14 + 20 + 8 + 12 + 4
IMMEDIATE = 4
RETH = 16
DETH_AND_LAB_HEADER = 8 + 40


def padded(payload_bytes):
    """InfiniBand's payloads are whole words (IBA 9.2.4)."""
    return -(-payload_bytes // 4) * 4


def payloads(length, most):
    """What the packets of a message carry; one of no bytes is a packet all the same."""
    whole, rest = divmod(length, most)
    return [most] * whole + [rest] * bool(rest or not whole)


def rc_frames(length, path_mtu):
    """Bytes of the frames of a SEND with immediate (IBA 9.2 and 9.3), from the Ethernet header."""
    frames = [ETHERNET_IPV4_UDP_BTH_ICRC + padded(n) for n in payloads(length, path_mtu)]
    frames[-1] += IMMEDIATE
    return frames


def striped_frames(length, path_mtu):
    """The same of a striped message: UD, and our header, which counts toward the MTU."""
    return [
        ETHERNET_IPV4_UDP_BTH_ICRC + DETH_AND_LAB_HEADER + padded(n)
        for n in payloads(length, path_mtu - 40)
    ]


def uc_immediate_frames(length, path_mtu):
    """The same of the framing uc_immediate: WRITEs with immediate, each with its RETH."""
    headers = ETHERNET_IPV4_UDP_BTH_ICRC + RETH + IMMEDIATE
    return [headers + padded(n) for n in payloads(length, path_mtu)]


def through_link(arrivals_ps, frames, rate_bps, delay_ps):
    """When frames that come at these times have passed a link: first come, first served.

    Lindley's recursion; rates that do not divide a frame into whole picoseconds carry their
    remainder as long as the link is busy.
    """
    left, begun_ps, work, free_ps = [], 0, 0, -1
    for at_ps, frame in zip(arrivals_ps, frames, strict=True):
        if at_ps > free_ps:
            begun_ps, work = at_ps, 0
        work += frame * 8 * PS
        free_ps = begun_ps + work // rate_bps
        left.append(free_ps + delay_ps)
    return left


def unloaded_ps(frames, links):
    """When the last of frames sent from time 0 on has passed all links: [(rate_bps, delay_ps)].

    Switches store each frame, and forward it in no time.
    """
    rate_bps, delay_ps = links[0]
    times = through_link([0] * len(frames), frames, rate_bps, delay_ps)
    for rate_bps, delay_ps in links[1:]:
        times = through_link(times, frames, rate_bps, delay_ps)
    return times[-1]


def go_back_n_slots(packets, loss, wasted, timeout):
    """Mean slots until a saturated sender has delivered so many packets in order; a slot is one
    packet's time.

    Each loss costs what was sent from the lost packet until the sender goes back, `wasted` slots:
    1/efficiency = 1 + wasted * loss / (1 - loss), Lin, Costello and Miller, "Automatic-repeat-
    request error-control schemes", IEEE Communications Magazine 22(12), 1984. Two things differ in
    InfiniBand (9.7.5.2.2): it is a later packet that reveals the loss, and if that one is lost as
    well, the one after it, a slot more; and a gap is said once, so that the loss of what was sent
    again, and any further one, costs a timeout.
    """
    revealed_later = loss / (1 - loss)
    first = loss * (wasted + revealed_later)
    again = loss * loss / (1 - loss) * timeout
    return packets * (1 + first + again)


def selective_repeat_retransmitted(packets, loss):
    """Mean and standard deviation of how often packets are sent again until each has arrived, if
    exactly the lost ones are: a packet is sent a geometric number of times, of mean 1/(1-p) and
    variance p/(1-p)^2. The efficiency is 1 - p (Lin, Costello and Miller, as above)."""
    return packets * loss / (1 - loss), math.sqrt(packets * loss) / (1 - loss)


def chunk_arrived(tries, loss, packets):
    """The probability that a chunk of so many packets, all of which are sent each time, is there
    after so many tries. What arrived with one try is kept, so that each packet needs one of them:
    (1 - p^tries)^packets. The first try, and chunks of one packet, are as in SDR-RDMA's model,
    where a chunk has to arrive whole, with P = 1 - (1-p)^packets, and tries are geometric
    (arXiv 2505.05366); the rest is this project's."""
    return (1 - loss ** np.maximum(tries, 0.0)) ** packets


def chunk_tries(loss, packets):
    """Mean and variance of how often a chunk is sent: sums of P(Y > t) and of (2t + 1) P(Y > t)."""
    tries = np.arange(_most_tries(loss, packets))
    missed = 1 - chunk_arrived(tries, loss, packets)
    mean = float(missed.sum())
    return mean, float(((2 * tries + 1) * missed).sum()) - mean**2


def _most_tries(loss, packets):
    """After which so many packets are all there, but for one case in 10^12."""
    return math.ceil(math.log(1e-12 / packets) / math.log(loss)) + 1


def largest_mean(times, step, loss, packets=1):
    """E[max over i of times[i] + (Y_i - 1) * step], Y_i how often a chunk i is sent."""
    most = _most_tries(loss, len(times) * packets)
    moments = np.unique(np.add.outer(np.asarray(times, float), step * np.arange(most)).ravel())
    tries = np.floor((moments[:, None] - np.asarray(times, float)[None, :]) / step + 1e-9) + 1
    below = np.prod(chunk_arrived(tries, loss, packets), axis=1)
    return float(moments[0] + np.sum(np.diff(moments) * (1 - below[:-1])))


def sdr_selective_repeat(chunks, loss, injection, rto, rtt, packets=1):
    """Mean completion time of a message with a timer per chunk of so many packets, by the model of
    SDR-RDMA: X_i = i T_inj + (RTO + T_inj)(Y_i - 1), T = max X_i + RTT (arXiv 2505.05366, its
    model of selective repeat), with Y_i as `chunk_arrived` has it."""
    times = [injection * (i + 1) for i in range(chunks)]
    return largest_mean(times, rto + injection, loss, packets) + rtt
