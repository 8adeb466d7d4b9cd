# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that run experiments: demo, run, sweep, crosscheck, fuzz."""
