# SPDX-License-Identifier: GPL-2.0-or-later
"""A large page: how long it takes to make and to load, its size, and its frames a second.

Frames are counted by the browser's own animation frames, whose callbacks run once for each frame
that the main thread makes, while a script scrolls or zooms in every frame.
"""

import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests.results.made import run
from tests.results.page.devtools import DevTools

NOTE_READY = """addEventListener("DOMContentLoaded", () => {
  const root = document.documentElement;
  new MutationObserver(() => { window.readyAt ??= performance.now(); })
    .observe(root, { attributes: true, attributeFilter: ["data-ready"] });
});"""

FRAMES = """new Promise((done) => {
  const times = [], act = %s;
  const frame = (at) => {
    times.push(at);
    if (at - times[0] > 3000) return done(times);
    act(times.length);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""
SCROLL = "(frame) => scrollBy({ top: frame % 200 < 100 ? 30 : -30, behavior: 'instant' })"
ZOOM = """(frame) => {
  const range = Bokeh.documents.flatMap((each) => each.roots())
    .find((each) => each.name === "timeline0").x_range;
  const half = (range.end - range.start) / 2 * (frame % 80 < 40 ? 0.95 : 1 / 0.95);
  const middle = (range.start + range.end) / 2;
  range.setv({ start: middle - half, end: middle + half });
}"""


class Bounds(NamedTuple):
    """What must hold."""

    hosts: int
    drops: int  # of data packets, at least so many
    made_s: float
    memory_bytes: int
    page_bytes: int
    ready_s: float
    frames_a_second: float


FULL = Bounds(128, 100_000, 10, 1 << 30, 15_000_000, 2, 30)
SHORT = Bounds(32, 5_000, 60, 1 << 30, 4_000_000, 20, 3)  # on a machine with other work, too


def made(hosts, folder):
    """An all-to-all in which 4.4 % of frames are lost on each of up to four links."""
    fabric = (
        f"{{kind: leaf-spine, leaves: {hosts // 8}, spines: 8, hosts_per_leaf: 8, "
        "access: {rate: 100Gbit, delay: 1us, limit: 1MiB}, "
        "core: {rate: 100Gbit, delay: 1us, limit: 1MiB}}"
    )
    return run(
        "all-to-all", folder, f"topology={{generator: {fabric}}}", "payload=none", "seeds=1",
        "workload={kind: all-to-all, bytes: 64KiB, repeat: 1}",
        "faults=[{name: lossy, links: '*<->*', loss: 4.4%}]", transports=("csa_ud",),
    )  # fmt: skip


# getrusage(2) would count what this process has: memory of a child begins with its parent's.
AND_ITS_MEMORY = """
from softroce_lab.cli.app import main
from softroce_lab.telemetry import memory
try:
    main()
finally:
    print("peak", memory.peak_bytes())
"""


def report(directory, page):
    """Seconds that `lab results report` takes, and its largest memory in bytes."""
    argv = [
        sys.executable,
        "-c",
        AND_ITS_MEMORY,
        "results",
        "report",
        str(directory),
        "-o",
        str(page),
    ]
    began = time.monotonic()
    done = subprocess.run(argv, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    return time.monotonic() - began, int(done.stdout.split()[-1])


def frames_a_second(browser, action):
    times = browser.run(FRAMES % action)
    return (len(times) - 1) * 1000 / (times[-1] - times[0])


@pytest.mark.full("report-speed")
def test_a_large_page(tmp_path, full, capsys):
    """A page of 128 hosts and 100,000 drops: made, loaded, scrolled and zoomed in bounds."""
    bounds = FULL if full else SHORT
    directory, page = made(bounds.hosts, tmp_path), tmp_path / "page.html"
    made_s, memory_bytes = report(directory, page)
    with DevTools(tmp_path) as browser:
        browser.before_load(NOTE_READY)
        browser.open(page)
        ready_s = browser.run("window.readyAt") / 1000
        table = browser.rows("csa_ud/1: number, first and last")
        drops = int(dict(row[:2] for row in table)["dropped"].replace(",", ""))
        scrolled = frames_a_second(browser, SCROLL)
        browser.run("document.querySelector('#timeline').scrollIntoView({ behavior: 'instant' })")
        zoomed = frames_a_second(browser, ZOOM)
        assert (browser.complaints, browser.requested) == ([], [])
    with capsys.disabled():
        print(f"\n{bounds.hosts} hosts, {drops:,} drops: {page.stat().st_size:,} bytes, made "
              f"in {made_s:.1f} s and {memory_bytes >> 20} MiB, ready in {ready_s:.2f} s, scrolls "
              f"at {scrolled:.0f} and zooms at {zoomed:.0f} frames a second")  # fmt: skip
    assert drops >= bounds.drops
    assert made_s <= bounds.made_s
    assert memory_bytes <= bounds.memory_bytes
    assert page.stat().st_size <= bounds.page_bytes
    assert ready_s <= bounds.ready_s
    assert min(scrolled, zoomed) >= bounds.frames_a_second
