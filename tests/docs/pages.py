# SPDX-License-Identifier: GPL-2.0-or-later
"""The pages of the site that people write."""

from softroce_lab.paths import PROJECT_ROOT

SITE = PROJECT_ROOT / "docs"
FOLDERS = ("tutorial", "howto", "explanation", "contributing")
WRITTEN = [page for folder in FOLDERS for page in sorted((SITE / folder).glob("*.md"))]
