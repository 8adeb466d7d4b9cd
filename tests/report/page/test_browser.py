# SPDX-License-Identifier: GPL-2.0-or-later
"""The page in a real browser: its numbers, its console, its requests, at three widths."""

import json

import pytest

from softroce_lab.report.page import assemble
from softroce_lab.report.recorded import Recorded
from tests.report.page.browser import Page
from tests.report.page.test_assemble import swept  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def page(ring_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    assemble.write(folder / "page.html", assemble.page(Recorded(ring_run)))
    return Page(folder / "page.html", folder)


def test_scripts_ran_without_an_error_or_a_request(page):
    html = next(found for tag, found in page.elements.attributes if tag == "html")
    assert html["data-ready"] == "yes"
    assert page.errors == []
    assert page.requested == []


def test_numbers_of_the_dom_are_those_of_the_directory(page, ring_run):
    runs = {each["run"]: each for each in Recorded(ring_run).runs}
    costs = {row[0]: row for row in page.rows("What each run cost")[1:]}
    assert costs.keys() == runs.keys()
    for name, run in runs.items():
        assert costs[name][1:3] == [f"{run['packets_sent']:,}", f"{run['retransmitted']:,}"]


def test_the_ladder_is_drawn_for_the_slowest_message(page):
    words = page.elements.ids["ladder-words"]
    assert "Where the time went:" in words
    rungs = page.rows("Each event of the message")
    assert rungs[0] == ["time, us", "way", "packets", "what"]
    assert any(row[1] == "lost" for row in rungs[1:])
    assert any(tag == "svg" and found.get("aria-label", "").startswith("Ladder of message h")
               for tag, found in page.elements.attributes)  # fmt: skip


def test_a_sweep(swept, tmp_path):  # noqa: F811
    assemble.write(tmp_path / "page.html", assemble.page(Recorded(swept)))
    found = Page(tmp_path / "page.html", tmp_path)
    assert (found.errors, found.requested) == ([], [])
    assert any(row[0] == "loss=one" for row in found.rows("Medians [95 % intervals] of the seeds"))


def test_a_run_on_the_real_clock_as_it_is_recorded(ring_run, tmp_path):
    """Without what the virtual clock alone records."""
    import shutil

    copy = shutil.copytree(ring_run, tmp_path / "copy")
    for name in ("recovery.parquet", "repairs.parquet"):
        (copy / name).unlink()
    manifest = json.loads((copy / "manifest.json").read_text())
    for each in manifest["runs"]:
        each |= {"clock": "real", "repairs": None, "fidelity": {"verdict": "faithful"}}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assemble.write(tmp_path / "page.html", assemble.page(Recorded(copy)))
    found = Page(tmp_path / "page.html", tmp_path)
    assert (found.errors, found.requested) == ([], [])
    assert all(row[4] == "faithful" for row in found.rows("Runs")[1:])


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
