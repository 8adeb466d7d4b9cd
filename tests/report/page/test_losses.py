# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses over time on the page: all drops are there, and at most so many points of other kinds."""

import html
import json
import re

import pytest

from softroce_lab import units
from softroce_lab.report.incidents import What
from softroce_lab.report.page import losses
from softroce_lab.report.recorded import Recorded

DROPPED = losses._WORDS[What.DROP]


@pytest.fixture(scope="module")
def known(ring_run):
    return losses.explained(Recorded(ring_run))


def there(one):
    """How many events of messages a run has, by their words."""
    found = {
        word: sum(each.what is what and each.message >= 0 for each in one.incidents)
        for what, word in losses._WORDS.items()
    }
    return {word: count for word, count in found.items() if count}


def shown(chart):
    """How many points of each kind the page's script is given."""
    about = json.loads(html.unescape(re.search('data-about="([^"]*)"', chart.extra)[1]))
    return {each["label"]: each["count"] for each in about["series"]}


def test_all_are_shown_while_they_are_few(known):
    _, charts = losses.timeline(known)
    assert [shown(chart) for chart in charts] == [there(one) for one in known.values()]
    assert len(charts) == 3


@pytest.mark.parametrize("most", [1, 3, 7])
def test_of_many_some_are_shown_but_all_drops(known, monkeypatch, most):
    monkeypatch.setattr(losses, "_MOST_POINTS", most)
    _, charts = losses.timeline(known)
    thinned = 0
    for chart, one in zip(charts, known.values(), strict=True):
        whole, points = there(one), shown(chart)
        assert points.keys() == whole.keys()
        assert points.pop(DROPPED) == whole.pop(DROPPED) > 0
        for word, count in points.items():
            assert min(whole[word], most // 2 + 1) <= count <= most
            thinned += count < whole[word]
    assert thinned > 3


def test_links_that_lost_most_come_first_with_their_rate(ring_run):
    recorded = Recorded(ring_run)
    text = losses.links(recorded)
    for run in [each for each in recorded.runs if each["seed"] == recorded.runs[0]["seed"]]:
        table = text.partition(f"<caption>Links of {run['run']}</caption>")[2]
        rows = re.findall(r"<tr>(.*?)</tr>", table.partition("</table>")[0])[1:]
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
        dropped = [int(row[3].replace(",", "")) for row in cells]
        assert dropped == sorted(dropped, reverse=True)
        assert dropped[0] > 0
        links = {each["name"]: each for each in recorded.links[run["run"]]}
        for name, _, rate, *_ in cells:
            link = links[html.unescape(name)]
            if link.get("bytes"):
                assert rate == units.format_rate(8 * link["bytes"] / (run["end_ns"] / 1e9))


def test_the_share_of_retransmissions_is_of_the_packets_sent(ring_run):
    recorded = Recorded(ring_run)
    for run in recorded.runs:
        share = losses._cost(run, {})[3]
        expected = 100 * run["retransmitted"] / run["packets_sent"]
        assert 0 < expected < 50
        assert float(share.rstrip("%")) == pytest.approx(expected, abs=0.006)
