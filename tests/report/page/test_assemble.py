# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a run and of a sweep: its figures, its alternatives, and nothing from outside."""

import re
import shutil

import pytest

from softroce_lab import units
from softroce_lab.errors import RunError, UserError
from softroce_lab.report.page import assemble, charts
from softroce_lab.report.recorded import Recorded
from softroce_lab.sweep import campaign
from softroce_lab.sweep import spec as sweep_spec
from tests.report.made import run

SWEEP = """\
name: small
experiment: point-to-point
set: {workload: {kind: point-to-point, bytes: 64KiB}}
over: {loss: {none: {}, one: {faults: [{name: l, links: "*<->*", loss: random 1%}]}}}
transports: [csa_ud, rc]
seeds: 2
"""


class SweepReporter:
    def say(self, text):
        pass

    def begin(self, runs):
        pass

    def done(self, task, row):
        pass


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.yaml").write_text(SWEEP)
    options = campaign.Options(under=folder, jobs=1)
    loaded = sweep_spec.load(str(folder / "small.yaml"))
    return campaign.run(loaded, options, SweepReporter()).directory


def test_the_sections_stand_in_their_order(ring_run):
    text = assemble.page(Recorded(ring_run))
    found = re.findall(r'<section id="(\w+)"', text)
    assert found == [
        "run",
        "verdicts",
        "completion",
        "steps",
        "timeline",
        "links",
        "cost",
        "ladders",
    ]
    assert re.findall(r'href="#(\w+)"', text)[1:] == found


def test_nothing_comes_from_outside(ring_run, swept):
    for folder in (ring_run, swept):
        text = assemble.page(Recorded(folder))
        sources = re.findall(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="([^"]*)"', text)
        assert all(source.startswith("data:") for source in sources)
        assert "default-src 'none'" in text


def test_the_figures_are_those_of_the_directory(ring_run):
    recorded = Recorded(ring_run)
    text = assemble.page(recorded)
    for each in recorded.runs:
        cells = [f"{each['packets_sent']:,}", f"{each['retransmitted']:,}"]
        assert f'<th scope="row">{each["run"]}</th><td>{cells[0]}</td><td>{cells[1]}</td>' in text
    for name in ("csa_ud", "irn", "rc"):
        times = sorted(r["fct_p99_ns"] for r in recorded.runs if r["transport"] == name)
        assert f"[{units.format_duration(times[0])}, {units.format_duration(times[-1])}]" in text


def test_every_chart_and_picture_has_words(ring_run):
    text = assemble.page(Recorded(ring_run))
    assert text.count('<div class="chart" role="img" aria-label="Chart: ') == text.count("<details>"
        "<summary>The data") > 3  # fmt: skip
    for image in re.findall(r"<img[^>]*>", text):
        assert re.search(r'alt="[^"]+"', image)
    assert '<html lang="en"' in text
    assert 'name="viewport"' in text


def test_a_sweep_has_its_cells(swept):
    text = assemble.page(Recorded(swept))
    assert re.findall(r'<section id="(\w+)"', text) == ["run", "verdicts", "cells", "rows"]
    assert '<th scope="row">loss=one</th><td>csa_ud</td><td>2</td>' in text


def test_a_failed_run_and_one_without_messages(tmp_path):
    lost = run("point-to-point", tmp_path, "workload={kind: point-to-point, bytes: 6000B}",
               "faults=[{name: all, links: '*->*', loss: random 100%}]", "blackout=1ms",
               transports=("irn",))  # fmt: skip
    text = assemble.page(Recorded(lost))
    assert "IBV_WC_RETRY_EXC_ERR" in text
    assert "No message was delivered" in text


def test_what_is_missing_is_said(ring_run, tmp_path):
    copy = shutil.copytree(ring_run, tmp_path / "copy")
    (copy / "experiment.json").unlink()
    assert "The fabric cannot be drawn" in assemble.page(Recorded(copy))
    (copy / "messages.parquet").unlink()
    with pytest.raises(UserError, match=r"messages.parquet is missing"):
        assemble.page(Recorded(copy))


def test_the_page_is_whole_or_not_there(tmp_path):
    path = tmp_path / "page.html"
    assemble.write(path, "one")
    assert path.read_text() == "one"
    with pytest.raises(RunError, match="cannot write"):
        assemble.write(tmp_path / "none" / "page.html", "two")
    with pytest.raises(RunError, match="cannot write"):
        assemble.write(path / "page.html", "two")  # its folder is a file
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        assemble.write(tmp_path / "folder.html", "two")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder.html", "page.html"]


def test_names_are_no_markup(ring_run, tmp_path):
    import json

    copy = shutil.copytree(ring_run, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["name"] = "<script>alert(1)</script>"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert "<script>alert(1)" not in assemble.page(Recorded(copy))


def test_a_line_keeps_its_extremes():
    import numpy as np

    x, y = np.arange(1e5), np.zeros(100_000)
    y[77_777] = 9
    thin_x, thin_y = charts.thinned(x, y)
    assert len(thin_x) <= charts.MOST_POINTS
    assert thin_y.max() == 9
    assert (thin_x[0], thin_x[-1]) == (0, 99_999)
