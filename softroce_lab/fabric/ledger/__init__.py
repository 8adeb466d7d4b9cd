# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab has put on this machine, and how exactly that is removed."""
