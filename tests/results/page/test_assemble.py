# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a run and of a sweep: its figures, its alternatives, and nothing from outside."""

import html
import re
import shutil

import pytest

from softroce_lab import units
from softroce_lab.errors import UserError
from softroce_lab.experiment.figure_table import SIZE_CLASSES
from softroce_lab.experiment.sweep import campaign
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.results import comparison, listing
from softroce_lab.results.page import assemble, charts, compared, times
from softroce_lab.results.recorded import Recorded
from softroce_lab.results.steps import Steps
from tests.results.made import run

FIGURES = "Median of the seeds [range]; counts are sums"  # the caption of that table
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


def test_the_verdicts_of_compare_are_on_the_page(ring_run, swept):
    """Of a run by figure, of a sweep how many cells differ; without a second transport none."""
    shown = html.unescape(compared.section(Recorded(ring_run)))
    lines = comparison.with_baseline(Recorded(ring_run), "csa_ud")["irn"].lines
    assert all(f"<td>{line.ratio}</td>" in shown for line in lines)
    assert "Fewer than 6 seeds cannot show a difference." in shown
    assert "<td>2 cells</td>" in compared.section(Recorded(swept))


def test_the_tail_has_the_share_that_took_longer(ring_run):
    _, [cdf, tail] = times.completion(Recorded(ring_run))
    [(x, share), *_], [(x_of_tail, longer), *_] = (
        [(line.data_source.data["x"], line.data_source.data["y"]) for line in each.figure.renderers]
        for each in (cdf, tail)
    )
    assert list(x_of_tail) == list(x[:-1])
    assert longer == pytest.approx(1 - share[:-1])


def test_the_sections_stand_in_their_order(ring_run):
    text = assemble.page(Recorded(ring_run))
    found = re.findall(r'<section id="(\w+)"', text)
    assert found == [
        "run",
        "verdicts",
        "figures",
        "compared",
        "completion",
        "steps",
        "timeline",
        "links",
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
    _, lines, notes = listing.table(recorded)
    for line in lines:
        assert row_of(text, FIGURES, line.title) == line.cells
    assert notes
    assert f"<p>{notes[0]}</p>" in text
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
    assert re.findall(r'<section id="(\w+)"', text) == [
        "run",
        "verdicts",
        "compared",
        "cells",
        "rows",
    ]
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
    with pytest.raises(UserError, match="cannot write"):
        assemble.write(tmp_path / "none" / "page.html", "two")
    with pytest.raises(UserError, match="cannot write"):
        assemble.write(path / "page.html", "two")  # its folder is a file
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        assemble.write(tmp_path / "folder.html", "two")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder.html", "page.html"]


@pytest.fixture(scope="module")
def flows_run(tmp_path_factory):
    """Open-loop traffic beside another job."""
    jobs = (
        "{kind: jobs, jobs: [{name: flows, workload: {kind: open-loop, load: 60%, sizes: hadoop, "
        "duration: 1ms, hosts: [h1, h2, h3]}}, {name: ring, workload: {kind: ring-all-reduce, "
        "bytes: 64KiB, hosts: [h4, h5, h6]}}]}"
    )
    return run("ring-all-reduce", tmp_path_factory.mktemp("flows"), f"workload={jobs}",
               "seeds=[1]", transports=("csa_ud", "irn"))  # fmt: skip


def row_of(text, caption, first):
    """The cells of a table's row that begins so."""
    table = text.partition(f"<caption>{html.escape(caption)}")[2].partition("</table>")[0]
    cells = re.search(f'<th scope="row">{re.escape(html.escape(first))}</th>(.*?)</tr>', table)[1]
    return [html.unescape(each) for each in re.findall("<td>(.*?)</td>", cells)]


def test_what_the_distribution_counts_is_what_the_percentiles_count(flows_run):
    recorded = Recorded(flows_run)
    text = assemble.page(recorded)
    middles = row_of(text, "Time within which a share of the messages completed", "50.0%")
    slowest = row_of(text, "Time within which a share of the messages completed", "99.9%")
    for at in range(len(recorded.runs)):
        p50, p999 = (row_of(text, FIGURES, f"{p} message completion") for p in ("p50", "p99.9"))
        assert (p50[at], p999[at].rstrip("*")) == (middles[at], slowest[at])
    left_out = sum(each["delivered"] - each["measured"] for each in recorded.runs)
    assert left_out > 0
    assert f"<p>{left_out:,} of " in text


def test_a_job_of_open_loop_traffic_has_its_slowdown_on_the_page(flows_run):
    recorded = Recorded(flows_run)
    text = assemble.page(recorded)
    assert '<section id="slowdown"' in text
    caption = "Slowdown by size: p50 and p99, medians of the seeds"
    for size in SIZE_CLASSES:
        cells = row_of(text, caption, size)
        for each, cell in zip(recorded.runs, cells, strict=True):
            [one] = [own for own in each["jobs"]["flows"]["slowdown"] if own["size_class"] == size]
            assert cell == (f"{one['p50']:.2f}, {one['p99']:.2f}" if one["n"] else "-")


def test_a_run_without_warm_up_does_not_speak_of_it(ring_run):
    assert "warm-up" not in assemble.page(Recorded(ring_run))


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


STEPS = (
    "workload={kind: jobs, jobs: [{name: model, workload: {kind: training, layers: 2, "
    "forward: 50us, gradient: 64KiB, steps: 3, hosts: [h1, h3]}}, {name: rings, workload: "
    "{kind: ring-all-reduce, bytes: 64KiB, message: 16KiB, repeat: 2, hosts: [h2, h4]}}]}"
)


def test_steps_of_each_job_have_a_chart_and_times_of_their_own(tmp_path):
    recorded = Recorded(run("ring-all-reduce", tmp_path, STEPS, "seeds=[1]", transports=("irn",)))
    text, made = times.steps(recorded)
    assert [chart.title for chart in made] == ["Time of each step of model",
                                               "Time of each step of rings"]  # fmt: skip
    figures = recorded.run("irn/1")
    known = Steps.of(recorded, figures, messages := recorded.table("messages", figures))
    taken = known.times_ns(messages)
    for index, each in enumerate(known.every):
        chart = made[each.job == "rings"]
        cells = row_of(chart.data, f"Step times of {each.job}, seed 1", each.name)
        assert cells == [units.format_duration(taken[index])]
    names = made[1].figure.xaxis[0].major_label_overrides
    assert list(names.values()) == ["rings:0:0", "rings:0:1", "rings:1:0", "rings:1:1"]
    assert text.count("@steps") == 2
    assert assemble.page(recorded).count('aria-label="Chart: Time of each step') == 2


def test_without_the_experiment_steps_of_jobs_are_not_known(tmp_path):
    folder = run("ring-all-reduce", tmp_path, STEPS, "seeds=[1]", transports=("irn",))
    (folder / "experiment.json").unlink()
    assert "Steps of jobs are not known" in assemble.page(Recorded(folder))
