# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that measure RDMA as perftest and the pingpongs do."""
