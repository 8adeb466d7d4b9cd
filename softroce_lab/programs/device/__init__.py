# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs on the lab's soft RNICs: the device that they find."""
