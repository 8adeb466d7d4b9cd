# SPDX-License-Identifier: GPL-2.0-or-later
"""A plan, hosts and a workload become a run and its directory."""
