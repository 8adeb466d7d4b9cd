# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs for those who work on the lab."""
