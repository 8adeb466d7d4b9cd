# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs that record packets and check them."""
