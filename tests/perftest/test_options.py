# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab.errors import UserError
from softroce_lab.perftest.options import SERVICES, TESTS, Options, PerfTest


def of(test, most_mtu=2048, **values):
    return PerfTest.of(Options(test, **values), most_mtu)


@pytest.mark.parametrize("name", TESTS)
def test_defaults_are_perftests(name):
    test = of(name)
    verb, latency = name.split("_")[0], name.endswith("_lat")
    assert (test.verb, test.latency) == (verb, latency)
    assert test.sizes == ((8,) if verb == "atomic" else (2,) if latency else (65536,))
    assert test.iterations == (5000 if name == "write_bw" else 1000)
    assert (test.tx_depth, test.rx_depth) == (1 if latency else 128, 512)
    assert (test.service, test.qps, test.mtu, test.spins) == ("RC", 1, 2048, True)


def test_large_messages_tell_their_ends_one_by_one():
    test = of("write_bw")
    assert (test.signal_every(8192), test.signal_every(8193)) == (100, 1)
    assert of("write_bw", tx_depth=16).signal_every(64) == 16
    assert of("write_bw", cq_moderation=7).signal_every(1 << 20) == 7
    assert of("send_lat", tx_depth=50).signal_every(64) == 1


def test_all_sizes():
    assert of("write_bw", all_sizes=True).sizes == tuple(2**n for n in range(1, 24))
    datagrams = of("send_bw", all_sizes=True, service="UD", most_mtu=1024)
    assert datagrams.sizes == tuple(2**n for n in range(1, 11))


def test_a_datagram_is_a_packet():
    assert of("send_bw", service="UD").sizes == (2048,)
    assert of("send_bw", service="UD", mtu=512).sizes == (512,)
    with pytest.raises(UserError, match="-s 1025 over UD"):
        of("send_bw", service="UD", bytes=1025, mtu=1024)


def test_a_duration_takes_the_place_of_iterations():
    test = of("send_bw", duration_s=1.5)
    assert (test.iterations, test.duration_s) == (None, 1.5)


@pytest.mark.parametrize(
    ("test", "values", "states"),
    [
        ("write", {}, "no test write"),
        ("write_bw", {"service": "UD"}, "write does not go over UD"),
        ("read_bw", {"service": "UC"}, "read does not go over UC"),
        ("atomic_bw", {"bytes": 16}, "-s 16"),
        ("write_bw", {"bytes": 0}, "-s 0"),
        ("write_bw", {"bytes": 1 << 29}, "-s 536870912"),
        ("write_bw", {"iterations": 4}, "-n 4"),
        ("write_bw", {"iterations": 100, "duration_s": 1.0}, "-n or -D"),
        ("write_bw", {"duration_s": float("nan")}, "-D nan"),
        ("write_bw", {"duration_s": 0.0}, "-D 0"),
        ("write_bw", {"duration_s": 1.0, "all_sizes": True}, "-D or -a"),
        ("write_bw", {"qps": 0}, "-q 0"),
        ("write_bw", {"tx_depth": 0}, "-t 0"),
        ("send_bw", {"rx_depth": 10**9}, "-r 1000000000"),
        ("send_bw", {"cq_moderation": -1}, "-Q -1"),
        ("send_bw", {"ack_timeout": 32}, "-u 32"),
        ("write_bw", {"all_sizes": True, "bytes": 4}, "-a or -s"),
        ("write_bw", {"cq_moderation": 500, "tx_depth": 10}, "-Q 500 is more than the 10 requests"),
        ("write_bw", {"cq_moderation": 129}, "-Q 129 is more than the 128 requests"),
        ("send_lat", {"cq_moderation": 1}, "-Q are of bandwidth tests"),
        ("send_lat", {"qps": 2}, "one queue pair"),
        ("send_lat", {"bidirectional": True}, "one queue pair"),
        ("write_bw", {"mtu": 1500}, "MTU of 1500"),
        ("write_bw", {"mtu": 4096}, "MTU of 4096"),
    ],
)
def test_nonsense_is_refused(test, values, states):
    with pytest.raises(UserError, match=states):
        of(test, **values)


def test_every_verb_has_a_service():
    assert {name.rpartition("_")[0] for name in TESTS} == set(SERVICES)
