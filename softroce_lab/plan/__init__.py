# SPDX-License-Identifier: GPL-2.0-or-later
"""The plan: nodes, links, routes and faults of a lab, all decided. What every other room reads."""
