# SPDX-License-Identifier: GPL-2.0-or-later
"""What all files of a user share: YAML with positions, validation, ready files."""
