# SPDX-License-Identifier: GPL-2.0-or-later
"""The page in a real browser: its numbers, its console, its requests, at three widths."""

import os

import numpy as np
import pyarrow.parquet as pq
import pytest

from softroce_lab import units
from softroce_lab.results.page import assemble
from softroce_lab.results.recorded import Recorded
from tests import patience
from tests.results.made import ring, run
from tests.results.page import figures
from tests.results.page.browser import Page
from tests.results.page.test_assemble import swept  # noqa: F401 - a fixture
from tests.results.programs_made import programs


def shown(directory, folder):
    """A directory's page in the browser: without an error, and without a request."""
    assemble.write(folder / "page.html", assemble.page(Recorded(directory)))
    found = Page(folder / "page.html", folder)
    html = next(attributes for tag, attributes in found.elements.attributes if tag == "html")
    assert html["data-ready"] == "yes"
    assert (found.errors, found.requested) == ([], [])
    return found


@pytest.fixture(scope="module")
def page(ring_run, tmp_path_factory):
    return shown(ring_run, tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def alone_run(tmp_path_factory):
    """With a single seed."""
    return ring(tmp_path_factory.mktemp("alone"), "seeds=[3]")


def table_of_figures(page):
    """Its cells by the titles of the lines."""
    for spread in ("range", "95 % interval"):
        if rows := page.rows(f"Median of the seeds [{spread}]; counts are sums"):
            return {title: cells for title, *cells in rows}
    return {}


def percentiles(page):
    """Of the table of figures, by transport, without marks."""
    found = table_of_figures(page)
    lines = [found[f"{each} message completion"] for each in ("p50", "p99", "p99.9")]
    return [[cell.rstrip("*") for cell in cells] for cells in zip(*lines, strict=True)]


def compare(page, directory):
    """Each number of the page's tables with the files of the directory."""
    assert [row[:5] for row in page.rows("Runs")[1:]] == figures.verdicts(directory)
    assert figures.counts(directory).items() <= table_of_figures(page).items()
    first = figures.manifest(directory)["seeds"][0]
    names = [each["run"] for each in figures.manifest(directory)["runs"] if each["seed"] == first]
    for name in names:
        rows = page.rows(f"Links of {name}")[1:]
        assert {row[0]: [row[1], row[3]] for row in rows} == figures.links(directory, name)
    return names


def test_numbers_of_the_dom_are_those_of_the_directory(page, ring_run):
    compare(page, ring_run)


def test_completion_times_and_losses(alone_run, tmp_path):
    found = shown(alone_run, tmp_path)
    names = compare(found, alone_run)
    assert percentiles(found) == figures.percentiles(alone_run)
    for name in names:
        points = dict(row[:2] for row in found.rows(f"{name}: number, first and last")[1:])
        assert points["dropped"] == figures.grouped(figures.drops(alone_run, name))


def test_a_failed_run(tmp_path):
    lossy = "faults=[{name: all, links: '*->*', loss: random 100%}]"
    size = "workload={kind: point-to-point, bytes: 6000B}"
    failed = run("point-to-point", tmp_path, size, lossy, "blackout=1ms", transports=("irn", "rc"))
    found = shown(failed, tmp_path)
    compare(found, failed)
    assert [row[1:3] for row in found.rows("Runs")[1:]] == 2 * [["failed", "0 of 1"]]
    assert "No message was delivered" in found.dom


def test_a_run_without_a_message(tmp_path):
    made = programs(tmp_path).directory
    found = shown(made, tmp_path)
    assert [row[:3] for row in found.rows("Runs")[1:]] == [["rc/1", "passed", "not seen"]]
    assert [row[0] for row in found.rows("Links of rc/1")[1:]] == ["h1->s1"]
    assert {row[0]: row[3] for row in found.rows("Programs")[1:]} == {
        "rc/1 h2": "5", "rc/1 h1": "1,234",
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_run_on_the_real_clock(tmp_path):
    """As it is made on this machine."""
    lossy = "faults=[{name: l, links: '*->*', loss: 2%}]"
    real = run("point-to-point", tmp_path, "clock=real", lossy,
               "topology=two-hosts", "seeds=1", "workload.bytes=256KiB", "name=browser",
               f"transports=[csa_ud, irn, {patience.RC}]")  # fmt: skip
    found = shown(real, tmp_path)
    names = compare(found, real)
    assert len(names) == 3
    assert percentiles(found) == figures.percentiles(real)


def test_the_ladder_is_drawn_for_the_slowest_message(page):
    words = page.elements.ids["ladder-words"]
    assert "Where the time went:" in words
    rungs = page.rows("Each event of the message")
    assert rungs[0] == ["time, us", "way", "packets", "what", "arrived", "missing"]
    assert any(row[1] == "lost" for row in rungs[1:])
    assert any(tag == "svg" and found.get("aria-label", "").startswith("Ladder of message h")
               for tag, found in page.elements.attributes)  # fmt: skip


def test_a_sweep(swept, tmp_path):  # noqa: F811
    found = shown(swept, tmp_path)
    head, *rows = found.rows("Median [range] of the seeds")
    assert {"makespan", "p99 completion", "goodput", "retransmitted"} < set(head)
    table = pq.read_table(swept / "runs.parquet").to_pylist()
    assert len(rows) == 4
    for cell, transport, seeds, *cells in rows:
        shown_as = dict(zip(head[3:], cells, strict=True))
        of = [
            each
            for each in table
            if (f"loss={each['loss']}", each["transport"]) == (cell, transport)
        ]
        assert seeds == str(len(of)) == "2"
        for title, figure in (("p99 completion", "fct_p99_ns"), ("makespan", "makespan_ns")):
            times = [each[figure] for each in of]
            middle, low, high = map(
                units.format_duration, (np.median(times), min(times), max(times))
            )
            whole = f"{middle} [{low}, {high}]"
            assert shown_as[title] == (whole if low != high else middle)
        again = [each["retransmitted"] for each in of]
        whole = f"{np.median(again):,g} [{min(again):,}, {max(again):,}]"
        assert shown_as["retransmitted"] in (whole, f"{again[0]:,}")
    verdicts = {row[0]: row[1:] for row in found.rows("Runs by verdict")[1:]}
    assert verdicts == {"csa_ud": ["4", "0", "0"], "rc": ["4", "0", "0"]}


@pytest.mark.parametrize("width", [390, 1920])
def test_no_width_makes_the_page_scroll_sideways(width, ring_run, tmp_path):
    text = assemble.page(Recorded(ring_run))
    measure = "[document.documentElement.scrollWidth, innerWidth].join()"
    later = f"setTimeout(() => (document.title = {measure}), 3000)"
    probe = f"<script>addEventListener('load', () => {later})</script></body>"
    assemble.write(tmp_path / "page.html", text.replace("</body>", probe))
    found = Page(tmp_path / "page.html", tmp_path, width=width)
    title = found.dom.partition("<title>")[2].partition("</title>")[0]
    scroll, inner = map(int, title.split(","))
    assert scroll <= inner
