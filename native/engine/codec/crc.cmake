# SPDX-License-Identifier: GPL-2.0-or-later
# softroce_crc: where CRC-32 comes from. ISA-L's is some ten times as fast as our own.
#   -D SOFTROCE_ISAL=AUTO  ISA-L if its library and header are there; ON insists; OFF: our own
set(SOFTROCE_ISAL AUTO CACHE STRING "CRC-32 of ISA-L: AUTO, ON or OFF")
find_library(ISAL_LIBRARY isal)
find_path(ISAL_INCLUDE isa-l/crc.h)

add_library(softroce_crc INTERFACE)
if(SOFTROCE_ISAL AND ISAL_LIBRARY AND ISAL_INCLUDE)
  target_compile_definitions(softroce_crc INTERFACE SOFTROCE_HAS_ISAL)
  target_include_directories(softroce_crc SYSTEM INTERFACE ${ISAL_INCLUDE})
  target_link_libraries(softroce_crc INTERFACE ${ISAL_LIBRARY})
  message(STATUS "softroce: CRC-32 of ISA-L: yes")
elseif(SOFTROCE_ISAL AND NOT SOFTROCE_ISAL STREQUAL "AUTO")
  message(FATAL_ERROR "SOFTROCE_ISAL is ${SOFTROCE_ISAL}, but ISA-L is not there: libisal-dev")
else()
  message(STATUS "softroce: CRC-32 of ISA-L: no, our own (libisal-dev has it)")
endif()
