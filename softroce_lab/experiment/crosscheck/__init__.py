# SPDX-License-Identifier: GPL-2.0-or-later
"""One experiment on both clocks, and whether they agree."""
