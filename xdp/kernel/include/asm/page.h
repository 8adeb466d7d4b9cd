/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PAGE_SIZE is a flag of the compilation. */
