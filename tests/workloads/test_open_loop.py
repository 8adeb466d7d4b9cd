# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic: Poisson arrivals, sizes, destinations, incasts, and streams of hosts."""

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

from softroce_lab.workloads.open_loop import IncastMix, OpenLoop
from softroce_lab.workloads.sizes import PUBLISHED, Sizes
from softroce_lab.workloads.work import mismatches
from tests.workloads.distances import assert_drawn_from, assert_exponential

MS = 10**6
RATE_BPS = 100 * 10**9
LOADS = [Fraction(10, 100), Fraction(60, 100), Fraction(90, 100)]


def traffic(hosts=16, load=LOADS[1], duration_ns=20 * MS, sizes="web-search", **more):
    rates = more.pop("rates_bps", (RATE_BPS,) * hosts)
    drawn = sizes if isinstance(sizes, Sizes) else Sizes.published(sizes)
    return OpenLoop(tuple(range(hosts)), rates, load, duration_ns, drawn, **more)


INCAST = IncastMix(8, Fraction(5, 100), 64_000)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("sizes", PUBLISHED)
@pytest.mark.parametrize("hosts", [2, 4, 16])
@pytest.mark.parametrize("incast", [None, INCAST])
def test_the_load_drawn_is_the_load_asked_for(hosts, sizes, load, incast):
    if incast:
        incast = dataclasses.replace(incast, degree=min(incast.degree, hosts - 1))
    for seed in range(2):
        work = traffic(hosts, load, sizes=sizes, seed=seed, incast=incast)
        carried = hosts * RATE_BPS * 20 * MS / 8e9
        assert work.flows["bytes"].sum() / carried == pytest.approx(float(load), rel=0.01)
        assert float(work.offered_load) == work.flows["bytes"].sum() / carried
        assert work.flows["at_ns"].min() >= 0
        assert work.flows["at_ns"].max() < 20 * MS


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("sizes", PUBLISHED)
def test_sizes_and_gaps_are_distributed_as_asked_for(sizes, load):
    work = traffic(16, load, 50 * MS, sizes, seed=3)
    assert_drawn_from(work.sizes, work.flows["bytes"])
    mean_ns = float(work.sizes.mean_bytes * 8 * 10**9 / (load * RATE_BPS))
    assert_exponential(gaps(work.flows), mean_ns)


def gaps(flows):
    each = (flows["at_ns"][flows["source"] == rank] for rank in np.unique(flows["source"]))
    return np.concatenate([np.diff(at_ns, prepend=0) for at_ns in each])


def test_destinations_are_all_others_equally_often():
    flows = traffic(5, sizes="hadoop").flows
    counts = np.zeros((5, 5))
    np.add.at(counts, (flows["source"], flows["destination"]), 1)
    assert (counts.diagonal() == 0).all()
    expected = counts.sum(axis=1, keepdims=True) / 4
    squares = ((counts - expected) ** 2 / expected)[~np.eye(5, dtype=bool)].sum()
    assert squares < 37.7  # chi-square, 15 degrees of freedom: one in 1,000 is above


def test_the_same_seed_draws_the_same_and_another_one_others():
    once, again = traffic(seed=7).flows, traffic(seed=7).flows
    assert once.tobytes() == again.tobytes()
    assert once.tobytes() != traffic(seed=8).flows.tobytes()


@pytest.mark.parametrize("hosts", [2, 3, 16])
def test_one_host_more_changes_no_other_stream(hosts):
    """A flow goes to the new host, or is as it was."""
    few, more = traffic(hosts).flows, traffic(hosts + 1).flows
    old = more[more["source"] < hosts]
    for field in ("at_ns", "source", "bytes"):
        assert (old[field] == few[field]).all()
    moved = old["destination"] != few["destination"]
    assert (old["destination"][moved] == hosts).all()
    assert moved.mean() == pytest.approx(1 / hosts, abs=0.1)


def incasts_of(work):
    """(when, to whom) -> from whom."""
    found = {}
    flows = work.flows[work.flows["bytes"] == work.incast.size_bytes]
    for at_ns, source, destination, _ in flows.tolist():
        found.setdefault((at_ns, destination), set()).add(source)
    return {event: senders for event, senders in found.items() if len(senders) > 1}


def test_incasts_have_their_degree_and_their_share():
    work = traffic(16, incast=INCAST, duration_ns=40 * MS)
    events = incasts_of(work)
    for (_, sink), senders in events.items():
        assert len(senders) == 8
        assert sink not in senders
    share = len(events) * 8 * 64_000 / work.flows["bytes"].sum()
    assert share == pytest.approx(0.05, rel=0.02)
    assert {sink for _, sink in events} == set(range(16))
    senders = np.bincount([rank for each in events.values() for rank in each])
    assert senders.min() > 0.6 * senders.mean()


def test_messages_are_the_flows_one_each():
    work = traffic(3, duration_ns=5 * MS)
    messages = list(work.messages())
    assert work.message_count == len(messages) == len(work.flows)
    for flow, message in zip(work.flows, messages, strict=True):
        assert flow["source"] == message.source
        assert flow["destination"] == message.destination
        assert flow["bytes"] == message.length_bytes
    names = [(each.source, each.destination, each.key) for each in messages]
    assert len(set(names)) == len(names)
    assert work.longest_message_bytes == max(each.length_bytes for each in messages)
    schedule = work.schedule()
    assert schedule.messages == messages
    sends = [each for of in schedule.of.values() for each in of if hasattr(each, "at_ns")]
    assert sorted(each.at_ns for each in sends) == work.flows["at_ns"].tolist()


def test_buffers_afterwards_are_what_messages_bring():
    ranks = (4, 1, 7)
    work = dataclasses.replace(traffic(3, duration_ns=5 * MS, sizes="hadoop"), ranks=ranks)
    buffers = {host: work.initial(host, 2) for host in ranks}
    before = {host: buffer.copy() for host, buffer in buffers.items()}
    for each in work.messages():
        begin, at = each.source_offset, each.destination_offset
        piece = before[each.source][begin : begin + each.length_bytes]
        buffers[each.destination][at : at + each.length_bytes] = piece
    assert mismatches(work, list(buffers.items()), 2) == []
    assert mismatches(work, list(before.items()), 2) != []
    assert work.buffer_bytes_of(2) == len(work.initial(2, 2)) == 0


def test_too_short_a_time_for_the_load_is_refused():
    work = traffic(2, duration_ns=MS // 10, sizes=Sizes.of_list([1 << 20]))
    with pytest.raises(ValueError, match="of the load asked for"):
        _ = work.flows


@pytest.mark.parametrize("flows_wanted", [Fraction(19, 2), Fraction(81, 2)])
def test_more_than_a_hundredth_beside_the_load_is_refused(flows_wanted):
    """Whole flows of one size: half a flow too many or too few is 5.3 or 1.2 %."""
    bytes_wanted = Fraction(2 * RATE_BPS * MS, 8 * 10**9) * LOADS[1]
    work = traffic(2, duration_ns=MS, sizes=Sizes.of_list([int(bytes_wanted / flows_wanted)]))
    with pytest.raises(ValueError, match="of the load asked for"):
        _ = work.flows


@pytest.mark.parametrize(
    "wrong",
    [
        {"load": Fraction(0)},
        {"load": Fraction(101, 100)},
        {"duration_ns": 0},
        {"hosts": 1},
        {"rates_bps": (1, 0) * 8},
        {"rates_bps": (1,)},
        {"incast": IncastMix(16, Fraction(1, 20), 1)},
        {"incast": IncastMix(0, Fraction(1, 20), 1)},
        {"incast": IncastMix(8, Fraction(1), 1)},
        {"incast": IncastMix(8, Fraction(1, 20), 0)},
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"load|host|incast"):
        traffic(**wrong)


def test_fixed_sizes_meet_the_load_together():
    """11.4 flows of each host on average: the hosts make up for one another's remainders."""
    work = traffic(16, Fraction(3, 10), 5 * MS, Sizes.of_list([1_640_000]))
    assert float(work.offered_load) == pytest.approx(0.3, rel=0.01)
    counts = np.bincount(work.flows["source"])
    assert all(abs(sum(counts[:n]) - 11.43 * n) < 2 for n in itertools.islice(range(17), 1, None))
