# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that read what experiments wrote."""
