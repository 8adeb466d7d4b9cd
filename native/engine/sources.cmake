# SPDX-License-Identifier: GPL-2.0-or-later
# The engine: no clock, no socket, no global randomness. Included wherever it is built.
set(engine_sources
  codec.cpp congestion.cpp connected_qp.cpp dcqcn.cpp framing.cpp message_channels.cpp
  message_engine.cpp qp_state.cpp queue_pair.cpp rc_requester.cpp rc_responder.cpp rnic.cpp
  swift.cpp uc_qp.cpp ud_qp.cpp)
list(TRANSFORM engine_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
file(GLOB transport_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../transport/*.cpp)
list(APPEND engine_sources ${transport_sources})
