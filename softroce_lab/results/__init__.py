# SPDX-License-Identifier: GPL-2.0-or-later
"""Run directories in; tables, stories, pages and figures out. No live object of a run."""
