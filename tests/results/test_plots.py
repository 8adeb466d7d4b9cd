# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures for papers: every kind, their metadata, and what cannot be drawn."""

import itertools
import json
import re
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment.figure_table import FIGURES, MESSAGES, SIZE_CLASSES, percentiles
from softroce_lab.experiment.sweep import campaign
from softroce_lab.experiment.sweep import spec as sweep_spec
from softroce_lab.results import comparison, figures_of, plots, ratio_plot, ratios, sweeps
from softroce_lab.results.recorded import Recorded
from tests.results.made import run
from tests.results.page.test_assemble import SweepReporter, swept  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def flows(tmp_path_factory):
    return run("web-search", tmp_path_factory.mktemp("flows"), "workload.duration=200us",
               "seeds=[1]", transports=("csa_ud", "irn"))  # fmt: skip


def saved(folder, kind, path, of=None):
    recorded = Recorded(folder)
    asked = plots.Asked(recorded, None if of is None else recorded.run(of))
    plots.save(asked, kind, path, f"lab results plot --kind {kind}")
    return path.read_bytes()


@pytest.mark.parametrize("kind", sorted({*plots.KINDS} - {"slowdown", "printed"}))
def test_every_kind_of_a_run(ring_run, tmp_path, kind):
    found = saved(ring_run, kind, tmp_path / "figure.svg", "irn/2").decode()
    assert f"lab results plot --kind {kind}; sha256 of the results " in found
    shown = {"cdf": "message completion time (us)", "fct": "p99.9", "timeline": "retransmission",
             "ccdf": "share that takes longer", "collective": "bus bandwidth (Mbit/s)",
             "ratios": "irn", "queue": "longest queue (KiB), irn/2",
             "heatmap": "mean completion (us)",
             "recovery": "repair time (us)"}  # fmt: skip
    assert shown[kind] in found


@pytest.mark.parametrize(("least", "most"), [(15, 56), (20, 190), (3, 1e6), (40, 44)])
def test_ticks_of_a_logarithmic_axis_do_not_overlap(least, most):
    mpl, plt = plots._matplotlib()
    figure, axes = plt.subplots(figsize=(3.4, 2.6))
    axes.plot([least, most], [0, 1])
    axes.set(xscale="log")
    plots._few_decades(mpl, axes)
    figure.canvas.draw()
    ticks = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
    shown = [each.get_window_extent() for each in ticks if each.get_text()]
    plt.close(figure)
    seen = sorted((box.x0, box.x1) for box in shown if axes.bbox.x0 <= box.x1 <= axes.bbox.x1 + 20)
    assert seen
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(seen))


def test_slowdowns_of_open_loop_traffic_alone(flows, ring_run, tmp_path):
    assert b"p99 slowdown" in saved(flows, "slowdown", tmp_path / "a.svg")
    with pytest.raises(UserError, match="there is no slowdown"):
        saved(ring_run, "slowdown", tmp_path / "b.svg")


def late(recorded, name):
    """Of a run's flows: rows that arrived after the first fifth of 200 us, and all columns."""
    table = recorded.table("messages", recorded.run(name))
    rows = (table["status"] == 0) & (table["arrival_ns"] >= 40_000)
    assert 0 < rows.sum() < len(rows)
    return rows, table


def test_the_distribution_leaves_out_the_warm_up_and_begins_with_the_arrival(flows):
    recorded = Recorded(flows)
    times = figures_of.completion_times(recorded)
    for name in ("csa_ud", "irn"):
        rows, of = late(recorded, f"{name}/1")
        assert sorted(times[name]) == sorted((of["completed_ns"] - of["arrival_ns"])[rows])
        measured = recorded.run(f"{name}/1")["measured"]
        assert len(times[name]) == measured
        median = np.sort(times[name])[-(-measured // 2) - 1]
        assert median == recorded.run(f"{name}/1")["fct_p50_ns"]


def test_the_heatmap_leaves_out_the_warm_up(flows):
    recorded = Recorded(flows)
    _, plt = plots._matplotlib()
    figure, axes = plt.subplots()
    plots._heatmap(axes, plots.Asked(recorded, recorded.run("irn/1")))
    shown = axes.images[0].get_array()
    assert axes.get_ylabel() == "sender"
    plt.close(figure)
    rows, of = late(recorded, "irn/1")
    hosts = list(recorded.manifest["hosts"])
    times = {}
    for row in np.flatnonzero(rows):
        ends = hosts.index(of["source"][row]), hosts.index(of["destination"][row])
        times.setdefault(ends, []).append((of["completed_ns"] - of["arrival_ns"])[row] / 1000)
    assert shown.count() == len(times)
    for ends, taken in times.items():
        assert shown[ends] == pytest.approx(np.mean(taken))


def test_the_tail_is_the_share_that_takes_longer(ring_run):
    recorded = Recorded(ring_run)
    _, plt = plots._matplotlib()
    figure, axes = plt.subplots()
    plots._ccdf(axes, plots.Asked(recorded))
    [line] = [each for each in axes.lines if each.get_label() == "rc"]
    plt.close(figure)
    times = figures_of.completion_times(recorded)["rc"] / 1000
    assert axes.get_yscale() == "log"
    for x, y in zip(*line.get_data(), strict=True):
        longer = (times > x).mean()
        assert longer <= y + 1e-12 if longer else x == times.max()


def test_a_collective_has_the_time_and_the_bus_bandwidth_of_each_transport(
    ring_run, flows, tmp_path
):
    recorded = Recorded(ring_run)
    _, plt = plots._matplotlib()
    figure, axes = plt.subplots()
    plots._collective(axes, plots.Asked(recorded))
    for panel, key in zip(figure.axes, ("operation_p50_ns", "busbw_bps"), strict=True):
        for at, drawn_points in enumerate(panel.containers):
            [x], [y] = drawn_points.lines[0].get_data()
            values = [r[key] for r in recorded.runs if r["transport"] == drawn_points.get_label()]
            assert (x, y) == (at, pytest.approx(np.median(values) / FIGURES[key].unit.divisor))
    plt.close(figure)
    with pytest.raises(UserError, match="no run that passed has a bus bandwidth"):
        saved(flows, "collective", tmp_path / "a.svg")


def test_the_timeline_has_each_completion_at_its_receiver(ring_run):
    recorded = Recorded(ring_run)
    _, plt = plots._matplotlib()
    figure, axes = plt.subplots()
    plots._timeline(axes, plots.Asked(recorded, recorded.run("irn/1")))
    [line] = [each for each in axes.lines if each.get_label() == "completed"]
    hosts = [each.get_text() for each in axes.get_yticklabels()]
    plt.close(figure)
    of = recorded.table("messages", recorded.run("irn/1"))
    assert (of["status"] == 0).all()
    shown = zip(line.get_xdata(), (hosts[round(y + 0.32)] for y in line.get_ydata()), strict=True)
    assert sorted(shown) == sorted(zip(of["completed_ns"] / 1000, of["destination"], strict=True))


def test_percentiles_are_medians_of_the_seeds_in_microseconds(ring_run):
    recorded = Recorded(ring_run)
    _, plt = plots._matplotlib()
    figure, axes = plt.subplots()
    plots._fct(axes, plots.Asked(recorded, None))
    shown = {each.get_label(): each.lines[0].get_ydata() for each in axes.containers}
    plt.close(figure)
    for name in ("csa_ud", "irn", "rc"):
        runs = [run for run in recorded.runs if run["transport"] == name]
        middles = [
            np.median([run[key] / 1000 for run in runs])
            for key in [each.key for each in percentiles(MESSAGES)]
        ]
        assert shown[name] == pytest.approx(middles)


def test_a_flow_that_waits_for_its_post_has_that_in_its_time():
    """Arrived at 3, posted at 5, over at 9."""
    of = {"arrival_ns": np.array([3]), "posted_ns": np.array([5]), "completed_ns": np.array([9])}
    assert figures_of.since_begun_ns(of).tolist() == [6]


def test_a_table_that_knows_no_warm_up_is_refused():
    old = {"arrival_ns": np.zeros(1), "status": np.zeros(1)}
    with pytest.raises(UserError, match="no after_warm_up"):
        figures_of.measured(old)


def test_equal_results_give_equal_bytes_with_their_digest(ring_run, tmp_path):
    digest = plots.digest(Recorded(ring_run)).encode()
    assert len(digest) == 64
    for suffix in plots.SUFFIXES:
        one, other = (saved(ring_run, "cdf", tmp_path / f"{n}.{suffix}") for n in "ab")
        assert one == other
        assert digest in one


def test_the_digest_is_of_the_results(ring_run, tmp_path):
    import shutil

    copy = shutil.copytree(ring_run, tmp_path / "copy")
    assert plots.digest(Recorded(copy)) == plots.digest(Recorded(ring_run))
    (copy / "report.html").write_text("a page")
    assert plots.digest(Recorded(copy)) == plots.digest(Recorded(ring_run))
    with (copy / "links.json").open("a") as file:
        file.write(" ")
    assert plots.digest(Recorded(copy)) != plots.digest(Recorded(ring_run))


def test_a_sweep_has_its_completion_times(swept, tmp_path):  # noqa: F811
    found = saved(swept, "fct", tmp_path / "a.svg").decode()
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", found)
    assert {"none", "one", "loss", "median and range of 2 seeds"} <= set(shown)
    assert not any("=" in each for each in shown)
    with pytest.raises(UserError, match="a sweep has no figure 'cdf'"):
        saved(swept, "cdf", tmp_path / "b.svg")


def test_ratios_are_those_of_compare(swept, tmp_path):  # noqa: F811
    """Of two directories, in a panel for each loss: geometric means with their intervals."""
    recorded = Recorded(swept)
    _, plt = plots._matplotlib()
    figure, axes = plt.subplots()
    ratio_plot.draw(axes, [recorded, recorded], ["loss=one"])
    [panel] = figure.axes
    values = comparison.values(recorded, ["loss=one"])
    pairs = ratios.over_others(values, next(iter(values))[1])
    expected = [
        row.ratios["fct_p99_ns"].mean for row in ratios.rows(values, values, pairs, ["fct_p99_ns"])
    ]
    assert panel.get_title() == "loss=one"
    assert [x for of in panel.containers for x in of.lines[0].get_xdata()] == expected
    plt.close(figure)
    with pytest.raises(UserError, match="'fct' is of one directory"):
        plots.save(plots.Asked(recorded, others=[recorded]), "fct", tmp_path / "a.svg", "")


def drawn(cells, transports, monkeypatch, seeds=2, axes=("topology.generator.delay", "loss")):
    """The axes of a sweep's figure, laid out; what matplotlib complains of fails."""
    rows = [
        {**dict(zip(axes, cell, strict=True)), "transport": name, "verdict": "passed",
         "fct_p99_ns": 1000 * seed}
        for cell in cells for name in transports for seed in range(1, seeds + 1)
    ]  # fmt: skip
    monkeypatch.setattr(sweeps, "rows", lambda _: rows)
    monkeypatch.setattr(sweeps, "axes", lambda _: list(axes))
    mpl, plt = plots._matplotlib()
    with warnings.catch_warnings(action="error"), mpl.rc_context(plots._STYLE):
        figure, made = plt.subplots(figsize=plots._INCHES, layout="constrained")
        plots._swept(made, None, FIGURES["fct_p99_ns"])
        figure.canvas.draw()
        plt.close(figure)
    return figure, made


@pytest.mark.parametrize(
    ("cells", "transports"),
    [
        ([("10ms", loss) for loss in ("none", "one in ten thousand", "one in a hundred")],
         ["csa_ud", "irn"]),
        ([(f"{n}" * 64, "long words of a value " * 9) for n in range(50)], ["x" * 64, "y" * 64]),
        ([(f"value number {n}", "one in ten thousand") for n in range(300)], ["rc"]),
    ],
)  # fmt: skip
def test_long_names_of_cells_leave_room_for_the_figure(cells, transports, monkeypatch):
    figure, axes = drawn(cells, transports, monkeypatch)
    whole = figure.bbox
    box = axes.get_window_extent()
    assert box.width > 0.5 * whole.width
    assert box.height > 0.3 * whole.height
    ticks = [each.get_window_extent() for each in axes.get_xticklabels()]
    assert all(one.x1 <= other.x0 + 1 for one, other in itertools.pairwise(ticks))
    for each in (
        *ticks,
        axes.yaxis.label.get_window_extent(),
        axes.xaxis.label.get_window_extent(),
    ):
        assert whole.x0 <= each.x0 <= each.x1 <= whole.x1
        assert whole.y0 <= each.y0 <= each.y1 <= whole.y1


def test_labels_of_cells_leave_out_what_all_have(monkeypatch):
    rows = [{"a.b.delay": "1ms", "a.c.delay": delay, "loss": loss, "mtu": 1500}
            for delay in ("1ms", "2ms") for loss in ("none", "one")]  # fmt: skip
    names = ["a.b.delay", "a.c.delay", "loss", "mtu"]
    labels = ["1ms, none", "1ms, one", "2ms, none", "2ms, one"]
    assert sweeps.short_labels(rows, names) == ("delay, loss", labels)
    rows = [{**row, "a.b.delay": row["a.c.delay"]} for row in rows]
    assert sweeps.short_labels(rows, names)[0] == "b.delay, c.delay, loss"
    assert sweeps.short_labels(rows[:1], []) == ("", ["all"])


@pytest.mark.parametrize(
    ("seeds", "words"),
    [(1, "of one seed"), (5, "median and range of 5 seeds"),
     (6, "median and 95 % interval of 6 seeds")],
)  # fmt: skip
def test_the_figure_says_what_its_bars_are(seeds, words, monkeypatch):
    _, axes = drawn([("1ms", "none"), ("1ms", "one")], ["rc"], monkeypatch, seeds)
    assert axes.get_xlabel() == f"loss\n{words}"


def test_what_cannot_be_written_leaves_nothing(ring_run, tmp_path):
    with pytest.raises(UserError, match="of what kind is it"):
        saved(ring_run, "cdf", tmp_path / "figure.docx")
    with pytest.raises(UserError, match="cannot write"):
        saved(ring_run, "cdf", tmp_path / "none" / "figure.pdf")
    (tmp_path / "figure.pdf").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        saved(ring_run, "cdf", tmp_path / "figure.pdf")
    assert [each.name for each in tmp_path.iterdir()] == ["figure.pdf"]


def test_nothing_delivered_is_nothing_to_draw(tmp_path):
    lost = run("point-to-point", tmp_path, "workload={kind: point-to-point, bytes: 6000B}",
               "faults=[{name: all, links: '*->*', loss: random 100%}]", "blackout=1ms",
               transports=("irn",))  # fmt: skip
    for kind, why in (("cdf", "no message was delivered"), ("recovery", "no lost packet arrived")):
        with pytest.raises(UserError, match=f"there is nothing to draw: {why}"):
            saved(lost, kind, tmp_path / "a.pdf")
    with pytest.raises(UserError, match="no message of irn/1 was delivered"):
        saved(lost, "heatmap", tmp_path / "a.pdf")


def test_without_losses_there_is_no_repair_to_draw(tmp_path):
    whole = run(
        "point-to-point", tmp_path, "workload.bytes=6000B", "faults=[]", transports=("irn",)
    )
    with pytest.raises(UserError, match="there is nothing to draw: no packet was lost"):
        saved(whole, "recovery", tmp_path / "a.pdf")


LOADS = """\
name: loads
experiment: ring-all-reduce
set: {workload: {kind: open-loop, load: 30%, sizes: hadoop, duration: 1ms, hosts: [h1, h2, h3]}}
over: {workload.load: [20%, 60%]}
transports: [csa_ud, irn]
seeds: 2
"""


@pytest.fixture(scope="module")
def loads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loads")
    (folder / "loads.yaml").write_text(LOADS)
    loaded = sweep_spec.load(folder / "loads.yaml")
    options = campaign.Options(under=folder, jobs=1)
    return campaign.run(loaded, options, SweepReporter()).directory


def test_slowdowns_of_a_sweep_by_size_and_cell(loads, tmp_path):
    """A panel a class of sizes; each point is the median of the runs' p99 in that class."""
    recorded = Recorded(loads)
    text = saved(loads, "slowdown", tmp_path / "a.svg").decode()
    assert {"20%", "60%", "load"} <= set(re.findall(r"<text[^>]*>([^<]*)</text>", text))
    rows = sweeps.rows(recorded)
    classes = {one["size_class"] for row in rows for one in row["slowdown"] if one["n"]}
    _, plt = plots._matplotlib()
    figure, axes = plt.subplots()
    plots._slowdown(axes, plots.Asked(recorded, None))
    panels = figure.axes
    assert [each.get_ylabel() for each in panels] == [s for s in SIZE_CLASSES if s in classes]
    for panel in panels:
        for drawn_line in panel.containers:
            of = dict(zip(*drawn_line.lines[0].get_data(), strict=True))
            for place, load in enumerate(("20%", "60%")):
                values = [
                    one["p99"] for row in rows for one in row["slowdown"]
                    if (row["workload.load"], row["transport"]) == (load, drawn_line.get_label())
                    and one["size_class"] == panel.get_ylabel() and one["n"]
                ]  # fmt: skip
                assert (place in of) == bool(values)
                assert not values or of[place] == pytest.approx(np.median(values))
    assert len(panels[0].containers) == 2
    plt.close(figure)


def test_a_sweep_without_slowdowns_has_none_to_draw(swept, tmp_path):  # noqa: F811
    with pytest.raises(UserError, match="there is nothing to draw: no run has a slowdown"):
        saved(swept, "slowdown", tmp_path / "a.svg")


def test_no_slowdown_of_flows_that_never_arrived(tmp_path):
    """Open-loop traffic that the deadline ended within the warm-up: classes without a flow."""
    folder = tmp_path / "cut"
    folder.mkdir()
    none = [{"size_class": "<=10kB", "n": 0, "p50": None, "p99": None}]
    run = {"transport": "irn", "seed": 1, "verdict": "failed", "slowdown": none}
    manifest = {"schema_version": 1, "state": "done", "runs": [run]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    arguments = [
        "results",
        "plot",
        str(folder),
        "--kind",
        "slowdown",
        "-o",
        str(tmp_path / "s.png"),
    ]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == ExitCode.USAGE, found.output
    assert "no flow behind the warm-up arrived" in found.output
