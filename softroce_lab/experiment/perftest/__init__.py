# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab perf`: perftest and the pingpongs at two hosts, and what the lab counted meanwhile."""
