# SPDX-License-Identifier: GPL-2.0-or-later
# The reader of captures. Included wherever it is built.
set(capture_sources contents.cpp frame.cpp pcapng.cpp reader.cpp)
list(TRANSFORM capture_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
