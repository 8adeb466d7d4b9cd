# SPDX-License-Identifier: GPL-2.0-or-later
"""Stolen CPU time, from the kernel's own file and from files that say what is asked about."""

import pytest

from softroce_lab.telemetry import stolen
from softroce_lab.telemetry.stolen import StolenTime


def stat(*ticks):
    return f"cpu  {' '.join(map(str, ticks))}\ncpu0 1 2 3 4 5 6 7 8 9 10\nctxt 5\n"


#        user nice system idle iowait irq softirq steal guest guest_nice
BEFORE = (100, 10, 50, 1000, 20, 5, 5, 40, 30, 3)


@pytest.mark.parametrize(
    ("gained", "share"),
    [
        ((0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0),  # not a tick has passed
        ((50, 0, 0, 50, 0, 0, 0, 0, 0, 0), 0),
        ((50, 0, 0, 40, 0, 0, 0, 10, 0, 0), 0.1),
        ((0, 0, 0, 0, 0, 0, 0, 10, 0, 0), 1),
        ((10, 10, 10, 10, 10, 10, 10, 10, 0, 0), 0.125),
        ((50, 0, 0, 40, 0, 0, 0, 10, 50, 7), 0.1),  # guests' time is in user and nice already
    ],
)
def test_share_since_the_beginning(tmp_path, monkeypatch, gained, share):
    path = tmp_path / "stat"
    monkeypatch.setattr(stolen, "_STAT", path)
    path.write_text(stat(*BEFORE))
    watch = StolenTime()
    path.write_text(stat(*(now + more for now, more in zip(BEFORE, gained, strict=True))))
    assert watch.share() == pytest.approx(share)
