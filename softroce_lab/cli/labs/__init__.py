# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that bring labs up, change and remove them."""
