# SPDX-License-Identifier: GPL-2.0-or-later
"""The pages of the site that people write."""

import re

from softroce_lab.paths import PROJECT_ROOT

SITE = PROJECT_ROOT / "docs"
FOLDERS = ("tutorial", "howto", "explanation", "contributing")
WRITTEN = [page for folder in FOLDERS for page in sorted((SITE / folder).glob("*.md"))]

_NAMED = re.compile(r"`(\w+\.yaml)`[^`]*```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TITLED = re.compile(r"^```yaml\n(# (\w+\.yaml).*?)^```", re.MULTILINE | re.DOTALL)


def files(page):
    """Files that a page shows, by the names that it gives them."""
    text = page.read_text()
    return {**dict(_NAMED.findall(text)), **{name: each for each, name in _TITLED.findall(text)}}
