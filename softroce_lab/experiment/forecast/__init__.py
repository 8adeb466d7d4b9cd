# SPDX-License-Identifier: GPL-2.0-or-later
"""Forecasts of a run before it starts: round trips, memory, idle rules."""
