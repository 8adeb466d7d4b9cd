# SPDX-License-Identifier: GPL-2.0-or-later
"""XDP programs and their maps: compiled, cached, loaded, attached, pinned."""
