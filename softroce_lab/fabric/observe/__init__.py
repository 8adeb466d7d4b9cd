# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab that is up does and did: plans, counters, traffic, paths, captures."""
