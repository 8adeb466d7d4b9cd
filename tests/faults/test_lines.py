# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import topology
from softroce_lab.faults import lines, live
from softroce_lab.plan.effects import Window

PLAN = topology.load("two-hosts")


def faults(words, links=(0,)):
    return live.set_on(PLAN, links, live.parse_impairments(words.split())).faults


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("loss 1% corrupt 2%", ("loss random 1%", "corrupt 2%")),
        ("drop message 0 packet 7 iter 1", ("drop message 0 packet 7 iter 1",)),
        (
            "drop message 0 packet 3-42,50 iter 1 loss 1%",
            ("drop 41 packets: message 0 packet 3-42,50 iter 1", "loss random 1%"),
        ),
        (
            "drop message 0 packet 1,3,5,7,9,11,13",
            ("drop 7 packets: message 0 packet 1,3,5,7,9,11,...",),
        ),
        (
            "drop qpn 1 psn 4-5 drop message 2 packet 0",
            ("drop 3 packets: qpn 1 psn 4-5; message 2 packet 0",),
        ),
    ],
)
def test_the_packets_that_a_rule_names_are_one_line(words, texts):
    assert lines.texts(faults(words)) == texts


@pytest.mark.parametrize(
    ("window", "now_ns", "text"),
    [
        (Window(), 5, ""),
        (Window(10, 20), None, ""),
        (Window(1_200_000_000, 1), 0, "acts in 1.2 s"),
        (Window(10, 20), 10, "acts now"),
        (Window(10, 20), 30, "over"),
        (Window(0, 10, 1000), 500, "acts in 500 ns"),
        (Window(10), 11, "acts now"),
    ],
)
def test_how_a_window_is_at_a_moment(window, now_ns, text):
    assert lines.moment(window, now_ns) == text


def test_a_rule_is_one_line_for_all_its_links():
    (rule,) = lines.rules(faults("loss 1%", links=(0, 1, 2)))
    assert rule.on(PLAN) == "loss random 1%  (live:loss) on h1<->s1, h2->s1"
