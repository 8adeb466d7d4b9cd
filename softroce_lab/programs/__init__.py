# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs of verbs: their devices, connection manager and kernel hosts."""
