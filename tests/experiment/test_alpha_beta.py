# SPDX-License-Identifier: GPL-2.0-or-later
"""Without loss a collective takes the time of its alpha-beta model, where that is exact.

It is exact where each link carries one flow at a time: T is the sum of alpha + n beta over the
steps (Thakur, Rabenseifner, Gropp 2005). Here alpha is the time of one packet over both links of a
star, and beta that of a byte with its share of headers.
"""

import pytest

from softroce_lab.experiment import virtual
from tests.experiment.kinds.examples import of

DELAY_NS, RATE_BPS, MTU = 1000, 10**11, 2048
# Those that acknowledge each packet are left out: acknowledgements are flows on the same links, and
# take 3.5 % of them.
HEADERS = {"rc": 14 + 20 + 8 + 12 + 4, "csa_ud": 14 + 20 + 8 + 12 + 8 + 40 + 4}


def halves(hosts):
    """Shares of the vector in an exchange that halves them."""
    return [1 / (2 << step) for step in range(hosts.bit_length() - 1)]


# (operation, algorithm) -> the share of the vector that a host sends in each step
STEPS = {
    ("all-reduce", "recursive-doubling"): lambda hosts: [1] * (hosts.bit_length() - 1),
    ("all-reduce", "halving-doubling"): lambda hosts: 2 * halves(hosts),
    ("all-reduce", "ring"): lambda hosts: [1 / hosts] * (2 * hosts - 2),
    ("reduce-scatter", "recursive-halving"): halves,
    ("reduce-scatter", "ring"): lambda hosts: [1 / hosts] * (hosts - 1),
    ("all-gather", "recursive-doubling"): halves,
    ("all-gather", "ring"): lambda hosts: [1 / hosts] * (hosts - 1),
    ("broadcast", "ring"): lambda hosts: [1] * (hosts - 1),
    ("all-to-all", "pairwise"): lambda hosts: [1 / hosts] * (hosts - 1),
}


def model_ns(op, algorithm, hosts, size, headers):
    """Of the last arrival."""
    packet_ns = 8 * 10**9 * (MTU + headers) / RATE_BPS
    shares = STEPS[op, algorithm](hosts)
    alpha_ns = 2 * DELAY_NS + packet_ns
    whole_ns = sum(alpha_ns + share * size / MTU * packet_ns for share in shares)
    # A step of the exchange ends when its send is acknowledged; acknowledgements are small.
    return whole_ns + (2 * DELAY_NS * (len(shares) - 1) if algorithm == "pairwise" else 0)


def measured_ns(op, algorithm, hosts, size, transport):
    experiment = of(f"""\
name: model
topology: {{generator: {{kind: star, hosts: {hosts}, access: {{rate: 100Gbit, delay: 1us}}}}}}
transports: [{transport}]
depth: 16
workload: {{kind: collective, op: {op}, algorithm: {algorithm}, bytes: {size}B, message: 1GiB}}
""")
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert run.reasons == []
    return run.messages["received_ns"].max() - run.messages["posted_ns"].min()


@pytest.mark.parametrize("transport", ["csa_ud"])
@pytest.mark.parametrize(("op", "algorithm"), STEPS)
def test_a_collective_takes_the_time_of_its_model(op, algorithm, transport):
    hosts = 8
    size = hosts * 32 * MTU
    expected = model_ns(op, algorithm, hosts, size, HEADERS[transport])
    assert measured_ns(op, algorithm, hosts, size, transport) == pytest.approx(expected, rel=0.03)


@pytest.mark.full("alpha-beta")
@pytest.mark.parametrize("transport", HEADERS)
@pytest.mark.parametrize(("op", "algorithm"), STEPS)
def test_so_does_one_of_1024_hosts(op, algorithm, transport, full):
    """The long form: every collective, two million messages in the longest; an hour or two.

    In the short form those that take many steps, or send much, have 128 hosts.
    """
    shares = STEPS[op, algorithm](64)
    is_short = len(shares) < 63 and sum(shares) <= 1
    hosts = 1024 if full or is_short else 128
    size = hosts * 3 * MTU
    expected = model_ns(op, algorithm, hosts, size, HEADERS[transport])
    found = measured_ns(op, algorithm, hosts, size, transport)
    print(op, algorithm, hosts, transport, f"{found / expected:.4f} of the model's time")
    assert found == pytest.approx(expected, rel=0.03)
