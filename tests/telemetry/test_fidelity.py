# SPDX-License-Identifier: GPL-2.0-or-later
"""The verdict on a run: each reason alone, none, all."""

import dataclasses

import pytest

from softroce_lab.telemetry.fidelity import (
    LATENESS_P99_LIMIT_NS,
    PAUSE_LIMIT_NS,
    STOLEN_LIMIT,
    THRESHOLDS,
    Pause,
    judge,
    percentile_log2_ns,
)
from softroce_lab.telemetry.links import LinkFigures, PortFigures, StageFigures, WireFigures

LINK = LinkFigures(
    directed_link=0, name="leaf1->spine1", sent=100, injected_drops=3, received=100,
    emulator_drops=0, records_lost=0,
)  # fmt: skip
PORT = PortFigures(node="h1", handed=100, taken=100, emulator_drops=0)
STAGE = StageFigures(fifo=True, cpu_share=0.1, lost=0)
WIRE = WireFigures(*(0,) * len(dataclasses.fields(WireFigures)))
ON_TIME = [0] * 10 + [1000]  # timers that fired 1 to 2 us late


def host(decision_ns=0, timers=ON_TIME):
    return {"decision_lateness_ns": {"p99": decision_ns}, "timer_lateness_log2_ns": timers}


def wire(**changed):
    return {"wire": dataclasses.replace(WIRE, **changed)}.items()


def verdict(*, link=(), port=(), hosts=None, stage=(), unwritten=0, stolen=0.0, pauses=()):
    """Of a run with one link and one port, changed as said."""
    links = [dataclasses.replace(LINK, **dict(link)), LINK]
    ports = [dataclasses.replace(PORT, **dict(port)), PORT]
    output = {"h1": host()} if hosts is None else hosts
    whole = dataclasses.replace(STAGE, **dict(stage))
    return judge(links, ports, output, whole, unwritten=unwritten, stolen=stolen, pauses=pauses)


def test_a_run_without_reproach():
    fidelity = verdict()
    assert fidelity.faithful
    assert str(fidelity) == "faithful"
    assert fidelity.document() == {
        "verdict": "faithful",
        "reasons": [],
        "thresholds": THRESHOLDS,
    }


def late_timers(exponent, share):
    """10,000 timers, of which a share fired 2**exponent ns late."""
    counts = [0] * 40
    counts[5], counts[exponent] = round(10_000 * (1 - share)), round(10_000 * share)
    return counts


REASONS = {
    "9 frames were lost on their way to the wire stage": {"stage": {"lost": 9}.items()},
    "1 % of the frames on leaf1->spine1 left 250 us late or more": {
        "link": wire(late_p99_ns=250_000)
    },
    "1 % of the frames on leaf1->spine1 left 260 us late or more, without real-time priority": {
        "link": wire(late_p99_ns=260_000),
        "stage": {"fifo": False}.items(),
    },
    "the emulator let 3 frames overtake others on leaf1->spine1": {"link": wire(disordered=3)},
    "the emulator lost 1 frames on leaf1->spine1": {"link": {"emulator_drops": 1}.items()},
    "the socket of h1 lost 7 frames": {"port": {"emulator_drops": 7}.items()},
    "4 records of drops or captured packets were lost": {"link": {"records_lost": 4}.items()},
    "1 % of the decisions of h1 came 6 ms late or more": {"hosts": {"h1": host(6_000_000)}},
    "1 % of the timers of h1 fired up to": {"hosts": {"h1": host(timers=late_timers(23, 0.011))}},
    "the hypervisor gave 6% of the CPUs' time to others": {"stolen": 0.06},
    "h2 did not run for 1.5 s (and 1 more process)": {
        "pauses": [
            Pause("h2", 0, 200_000_000),
            Pause("the monitor", 0, 1_400_000_000),
            Pause("h2", 400_000_000, 1_500_000_000),
        ]
    },
}


@pytest.mark.parametrize(("reason", "changes"), REASONS.items(), ids=REASONS)
def test_each_reason_alone(reason, changes):
    fidelity = verdict(**changes)
    assert not fidelity.faithful
    (reported,) = fidelity.reasons
    assert reported.startswith(reason)
    assert str(fidelity) == f"not faithful: {reported}"
    document = {"verdict": "not faithful", "reasons": [reported], "thresholds": THRESHOLDS}
    assert fidelity.document() == document


def test_only_the_part_of_a_pause_within_the_workload_counts():
    pauses = [(0, 90), (80, 120), (150, 160), (190, 300), (200, 300)]
    assert Pause.within("h1", pauses, 100, 200) == [
        Pause("h1", 0, 20),
        Pause("h1", 50, 10),
        Pause("h1", 90, 10),
    ]


def test_negative_conservation_is_a_reproach_too():
    """More frames at the far end than were sent: somebody's count is wrong."""
    assert not verdict(link={"emulator_drops": -1}.items()).faithful


def test_records_without_room_and_those_that_overflowed_are_counted_together():
    fidelity = verdict(unwritten=5, link={"records_lost": 4}.items())
    assert fidelity.reasons == ("9 records of drops or captured packets were lost",)


@pytest.mark.parametrize(
    "changes",
    [
        {"stolen": STOLEN_LIMIT},
        {"hosts": {"h1": host(LATENESS_P99_LIMIT_NS)}},
        {"hosts": {"h1": host(timers=late_timers(30, 0.009))}},  # less than 1 %
        {"hosts": {"h1": host(timers=late_timers(21, 1))}},  # at most 2**22 ns = 4.2 ms
        {"hosts": {}},
        {"pauses": [Pause("h1", at_ns, PAUSE_LIMIT_NS) for at_ns in (0, 200_000_000)]},
    ],
)
def test_what_the_limits_allow(changes):
    assert verdict(**changes).faithful


def test_one_line_a_cause_names_the_worst_place_and_counts_the_others():
    fidelity = verdict(hosts={"h1": host(), "h2": host(8_000_000), "h3": host(9_000_000)})
    (reason,) = fidelity.reasons
    assert reason == "1 % of the decisions of h3 came 9 ms late or more (and 1 more host)"
    late = dataclasses.replace(WIRE, late_p99_ns=250_000)
    links = [
        dataclasses.replace(LINK, name=f"a->b{n}", emulator_drops=n, wire=late) for n in range(25)
    ]
    lost, left = judge(links, [], {}, STAGE, unwritten=0, stolen=0.0).reasons
    assert lost == "the emulator lost 24 frames on a->b24 (and 23 more links)"
    assert left == "1 % of the frames on a->b0 left 250 us late or more (and 24 more links)"


# ---------------------------------------------------------------- percentiles of a histogram


@pytest.mark.parametrize(
    ("counts", "fraction", "upper_ns"),
    [
        ([], 0.99, 0),
        ([0, 0, 0], 0.99, 0),
        ([5], 0.5, 2),  # bucket 0 holds 1 ns: the bound is below 2
        ([0, 0, 0, 1], 0.99, 16),
        ([99, 0, 0, 1], 0.99, 2),
        ([98, 0, 0, 2], 0.99, 16),
        ([50, 50], 0.5, 2),
        ([49, 51], 0.5, 4),
        ([1, 1, 1, 1], 1.0, 16),
    ],
)
def test_percentile_is_the_upper_bound_of_its_bucket(counts, fraction, upper_ns):
    assert percentile_log2_ns(counts, fraction) == upper_ns
