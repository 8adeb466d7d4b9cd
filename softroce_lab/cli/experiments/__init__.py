# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs about experiments: demo, run, workload, sweep, crosscheck, fuzz, new."""
