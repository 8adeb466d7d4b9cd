# SPDX-License-Identifier: GPL-2.0-or-later
"""Benchmarks: each a measurement of its own, as ratios within one run."""
