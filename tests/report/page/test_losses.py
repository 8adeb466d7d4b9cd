# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses over time on the page: all drops are there, and at most so many points of other kinds."""

import html
import json
import re

import pytest

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
