# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: one file a verb; each parses, calls, prints, and contains no logic."""
