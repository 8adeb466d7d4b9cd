# SPDX-License-Identifier: GPL-2.0-or-later
"""Erasure codes over chunks of memory."""
