# SPDX-License-Identifier: GPL-2.0-or-later
"""Failovers of queue pairs, drawn from seeds: exactly once and in order, or a surfaced error."""
