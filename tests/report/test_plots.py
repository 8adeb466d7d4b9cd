# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures for papers: every kind, their metadata, and what cannot be drawn."""

import itertools

import pytest

from softroce_lab.errors import RunError, UserError
from softroce_lab.report import plots
from softroce_lab.report.recorded import Recorded
from tests.report.made import run
from tests.report.page.test_assemble import swept  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def flows(tmp_path_factory):
    return run("web-search", tmp_path_factory.mktemp("flows"), "workload.duration=200us",
               "seeds=[1]", transports=("csa_ud", "irn"))  # fmt: skip


def saved(folder, kind, path, of=None):
    recorded = Recorded(folder)
    asked = plots.Asked(recorded, None if of is None else recorded.run(of))
    plots.save(asked, kind, path, f"lab plot --kind {kind}")
    return path.read_bytes()


@pytest.mark.parametrize("kind", [kind for kind in plots.KINDS if kind != "slowdown"])
def test_every_kind_of_a_run(ring_run, tmp_path, kind):
    found = saved(ring_run, kind, tmp_path / "figure.svg", "irn/2").decode()
    assert f"lab plot --kind {kind}; sha256 of the results " in found
    shown = {"cdf": "message completion time (us)", "fct": "p99.9", "timeline": "retransmission",
             "queue": "longest queue (KiB), irn/2", "heatmap": "mean completion (us)",
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


def test_equal_results_give_equal_bytes(ring_run, tmp_path):
    for suffix in plots.SUFFIXES:
        one, other = (saved(ring_run, "cdf", tmp_path / f"{n}.{suffix}") for n in "ab")
        assert one == other


def test_metadata_of_each_format(ring_run, tmp_path):
    digest = plots.digest(Recorded(ring_run)).encode()
    assert len(digest) == 64
    for suffix in plots.SUFFIXES:
        assert digest in saved(ring_run, "cdf", tmp_path / f"a.{suffix}")


def test_the_digest_is_of_the_results(ring_run, tmp_path):
    import shutil

    copy = shutil.copytree(ring_run, tmp_path / "copy")
    assert plots.digest(Recorded(copy)) == plots.digest(Recorded(ring_run))
    (copy / "report.html").write_text("a page")
    assert plots.digest(Recorded(copy)) == plots.digest(Recorded(ring_run))
    with (copy / "links.json").open("a") as file:
        file.write(" ")
    assert plots.digest(Recorded(copy)) != plots.digest(Recorded(ring_run))


def test_a_sweep_has_one_kind(swept, tmp_path):  # noqa: F811
    assert b"loss=one" in saved(swept, "fct", tmp_path / "a.svg")
    with pytest.raises(UserError, match="a sweep has no figure 'cdf'"):
        saved(swept, "cdf", tmp_path / "b.svg")


def test_what_cannot_be_written_leaves_nothing(ring_run, tmp_path):
    with pytest.raises(UserError, match="of what kind is it"):
        saved(ring_run, "cdf", tmp_path / "figure.docx")
    with pytest.raises(RunError, match="cannot write"):
        saved(ring_run, "cdf", tmp_path / "none" / "figure.pdf")
    (tmp_path / "figure.pdf").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        saved(ring_run, "cdf", tmp_path / "figure.pdf")
    assert [each.name for each in tmp_path.iterdir()] == ["figure.pdf"]


def test_nothing_delivered_is_nothing_to_draw(tmp_path):
    lost = run("point-to-point", tmp_path, "workload={kind: point-to-point, bytes: 6000B}",
               "faults=[{name: all, links: '*->*', loss: random 100%}]", "blackout=1ms",
               transports=("irn",))  # fmt: skip
    for kind in ("cdf", "recovery"):
        with pytest.raises(UserError, match="there is nothing to draw"):
            saved(lost, kind, tmp_path / "a.pdf")
    with pytest.raises(UserError, match="no message of irn/1 was delivered"):
        saved(lost, "heatmap", tmp_path / "a.pdf")
