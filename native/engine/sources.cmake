# SPDX-License-Identifier: GPL-2.0-or-later
# The engine, with its transports and the erasure codes that they use: no clock, no socket, no global
# randomness. Included wherever it is built.
set(engine_sources
  codec/codec.cpp congestion/congestion.cpp congestion/dcqcn.cpp
  congestion/nscc.cpp congestion/swift.cpp rnic/greeter.cpp rnic/operations.cpp rnic/rnic.cpp
  striped/coding.cpp striped/config_text.cpp striped/control_queue.cpp striped/engine_state.cpp
  striped/event_queue.cpp
  striped/flow_control.cpp striped/framing.cpp striped/loss_detector.cpp
  striped/message_engine.cpp striped/path_picker.cpp striped/peer_table.cpp striped/receiver.cpp
  striped/receiver_channels.cpp striped/reporter.cpp striped/send_order.cpp striped/sender.cpp
  striped/sender_channels.cpp striped/sender_losses.cpp striped/tail_parity.cpp
  verbs/connected_qp.cpp verbs/qp_state.cpp verbs/queue_pair.cpp verbs/rc_requester.cpp
  verbs/rc_responder.cpp verbs/striped_requester.cpp verbs/striped_responder.cpp verbs/uc_qp.cpp verbs/ud_qp.cpp)
list(TRANSFORM engine_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
file(GLOB transport_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../transport/*.cpp
  ${CMAKE_CURRENT_LIST_DIR}/../erasure/*.cpp)
list(APPEND engine_sources ${transport_sources})
