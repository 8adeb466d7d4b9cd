# SPDX-License-Identifier: GPL-2.0-or-later
"""How Sphinx builds the site: `sphinx-build -W -b html docs build/site`, without a network."""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.insert(0, str(HERE.parent))  # the reference is made from this tree's code

from softroce_lab import __version__  # noqa: E402 - after the path

project = "softroce_lab"
author = "the softroce_lab developers"
release = __version__
extensions = ["myst_parser", "reference"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "learn", "records"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
nitpicky = True
smartquotes = False

html_theme = "furo"
html_title = f"softroce_lab {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"

_MENDED = {  # what axe-core finds in the theme's pages
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer': '<aside aria-label="Contents of this page" class="toc-drawer',
    '<div class="highlight"><pre>': '<div class="highlight"><pre tabindex="0">',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}


def _mend(app: Any, error: Exception | None) -> None:
    for page in () if error else Path(app.outdir).rglob("*.html"):
        text = page.read_text()
        for wrong, right in _MENDED.items():
            text = text.replace(wrong, right)
        page.write_text(text)


def setup(app: Any) -> None:
    """Mend each page that was written."""
    app.connect("build-finished", _mend)
