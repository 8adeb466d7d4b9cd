# SPDX-License-Identifier: GPL-2.0-or-later
"""A Sphinx extension that writes the pages of reference/ from the code, before Sphinx reads them.

A page is a function that returns Markdown. `reference/index.md` is the only page that is written
by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reference import counters, events, keys, results, rules, transports, verbs, wire

PAGES = {
    "verbs": verbs.page,
    "experiments": keys.experiments,
    "sweeps": keys.sweeps,
    "topologies": keys.topologies,
    "faults": keys.faults,
    "transports": transports.page,
    "figures": results.figures,
    "run-directory": results.run_directory,
    "counters": counters.page,
    "event-log": events.page,
    "wire-format": wire.page,
    "rules": rules.page,
}


def write(app: Any) -> None:
    """Write all pages; one that did not change keeps its time, so that Sphinx does not read it."""
    folder = Path(app.srcdir) / "reference"
    for name, page in PAGES.items():
        text, path = page(), folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
