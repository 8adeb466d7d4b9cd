# SPDX-License-Identifier: GPL-2.0-or-later
"""One HTML page of a run directory or a sweep, which opens without a network."""
