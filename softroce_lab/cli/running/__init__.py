# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab run` does with each kind of file, and what it prints."""
