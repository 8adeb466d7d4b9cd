# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that show a lab: graph, inspect, top, stats, ping, trace."""
