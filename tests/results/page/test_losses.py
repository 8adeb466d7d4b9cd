# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses over time on the page: all drops are there, and at most so many points of other kinds."""

import base64
import html
import json
import re
import zlib

import numpy as np
import pytest

from softroce_lab import units
from softroce_lab.results.incidents import What
from softroce_lab.results.page import losses
from softroce_lab.results.recorded import Recorded
from tests.results import made

DROPPED = losses._WORDS[What.DROP]


@pytest.fixture(scope="module")
def known(ring_run):
    return losses.explained(Recorded(ring_run))


def there(one):
    """How many events of messages a run has, and messages that were completed, by their words."""
    found = {
        word: sum(each.what is what and each.message >= 0 for each in one.incidents)
        for what, word in losses._WORDS.items()
    }
    found["message completed"] = int((one.messages.columns["status"] == 0).sum())
    return {word: count for word, count in found.items() if count}


def shown(chart):
    """How many points of each kind the page's script is given."""
    about = json.loads(html.unescape(re.search('data-about="([^"]*)"', chart.extra)[1]))
    return {each["label"]: each["count"] for each in about["series"]}


def test_all_are_shown_while_they_are_few(known):
    _, charts = losses.timeline(known)
    assert [shown(chart) for chart in charts] == [there(one) for one in known.values()]
    assert len(charts) == 3


def points(chart):
    """Times in us and rows of each kind, as the page's script unpacks them (points.js)."""
    about = json.loads(html.unescape(re.search('data-about="([^"]*)"', chart.extra)[1]))
    packed = re.search("data-cloud[^>]*>([^<]*)<", chart.extra)[1]
    values, found, at = np.frombuffer(zlib.decompress(base64.b64decode(packed))), {}, 0
    for each in about["series"]:
        times, rows = values[at : at + each["count"]], values[at + each["count"] :]
        places = [about["places"][int(row)] for row in rows[: each["count"]]]
        found[each["label"]] = list(zip(np.cumsum(times).tolist(), places, strict=True))
        at += 2 * each["count"]
    return found


def test_each_completion_stands_at_its_receiver(known):
    _, charts = losses.timeline(known)
    for chart, one in zip(charts, known.values(), strict=True):
        of = one.messages.columns
        whole = sorted(zip(of["completed_ns"].tolist(), of["destination"].tolist(), strict=True))
        assert sorted(points(chart)["message completed"]) == whole
        assert "(pluses)" in chart.caption


def test_all_runs_have_one_time_axis(known):
    _, charts = losses.timeline(known)
    ranges = {(each.figure.x_range.start, each.figure.x_range.end) for each in charts}
    [(start, end)] = ranges
    last = max(int(one.messages.columns["completed_ns"].max()) for one in known.values())
    assert start < 0 < last / 1000 < end


def test_kinds_have_shapes_of_their_own_whatever_is_missing(known, monkeypatch):
    """So the caption is right without losses, too."""
    monkeypatch.setattr(losses, "_SHOWN", (What.SENT_AGAIN,))
    _, charts = losses.timeline(known)
    for chart in charts:
        about = json.loads(html.unescape(re.search('data-about="([^"]*)"', chart.extra)[1]))
        shapes = {each["label"]: each["shape"] for each in about["series"]}
        assert shapes == {"sent again": "square", "message completed": "plus"}


def test_without_a_loss_completions_are_there(tmp_path):
    whole = made.run("point-to-point", tmp_path, "faults=[]", "workload.bytes=64KiB", "seeds=1",
                     transports=("irn",))  # fmt: skip
    text, charts = losses.timeline(losses.explained(Recorded(whole)))
    assert "No packet was lost." in text
    assert [list(shown(chart)) for chart in charts] == [["message completed"]]


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
