// SPDX-License-Identifier: GPL-2.0-or-later
// Mistakes that can be made on purpose, to see whether `lab fuzz` notices them. They exist in the
// module `_native_mutants` alone (SOFTROCE_MUTANTS), where one at most is chosen at a time;
// anywhere else `mutated` is a constant false, and the compiler leaves nothing of it.
#pragma once

namespace softroce {

// clang-format off
#define SOFTROCE_EACH_MUTANT(M) \
  M(none, "all is as it is to be") \
  /* striped/: receiver.cpp, sender*.cpp, message_engine.cpp, flow_control.cpp, loss_detector.cpp */ \
  M(bit_skipped, "a packet is counted, and its bit is not set") \
  M(bytes_skipped, "a packet's bit is set, and its bytes are not stored") \
  M(one_too_early, "a receive completes with one packet missing") \
  M(duplicate_counts, "a packet that came twice counts twice") \
  M(slot_reused_early, "an id's slot is used again while the message in it is outstanding") \
  M(retransmit_of_neighbour, "a packet that is sent again carries its neighbour's bytes") \
  M(attempt_not_counted, "a packet that is sent again is numbered as sent for the first time") \
  M(timer_not_armed, "the timer that a policy sets is not kept") \
  M(peer_timer_not_armed, "nor that of a peer") \
  M(connection_timer_not_armed, "nor that of a transport's connection") \
  M(hold_not_released, "first transmissions that a full window of PSNs holds are never sent") \
  M(persist_not_armed, "a window that no report opens stays closed") \
  M(holes_shifted, "a NACK names the packets behind those that are missing") \
  M(loss_forgotten, "a sender passes over the first packet that a NACK names") \
  M(pace_not_armed, "who is to wait for congestion control waits for ever") \
  /* receiver_channels.cpp: the framing uc_immediate */ \
  M(generation_unchecked, "a packet of an earlier use of a slot is taken for one of this use") \
  M(clearance_not_repeated, "a receiver reports once that it is ready") \
  M(slot_given_twice, "a slot is given away before what uses it is over") \
  /* coding.cpp, transport/coding.cpp: erasure-coded messages */ \
  M(decode_skipped, "lost data is taken for restored, and its bytes are not written") \
  M(parity_of_neighbour, "a packet of parity carries the bytes of the one before it") \
  M(restored_too_much, "with a submessage the one behind it counts as restored") \
  /* tail_parity.cpp: parity while the host waits */ \
  M(tail_row_of_neighbour, "a packet of parity carries the bytes of the row before it") \
  M(tail_block_shifted, "parity covers the packets before those that it is taken for") \
  M(tail_row_too_few, "a receiver takes one row more than arrived for parity") \
  M(parity_while_busy, "parity leaves while data waits, whatever it costs") \
  M(parity_despite_marks, "parity leaves to a peer that reports congestion marks") \
  M(parity_over_budget, "a host sends as much parity as it likes") \
  /* session.cpp, csa_ud.cpp, sack_session.cpp, ud_rto.cpp */ \
  M(ack_of_next, "a receiver acknowledges the message after the newest, too") \
  M(ack_of_any_generation, "an acknowledgement ends whatever uses the slot now") \
  M(outcome_of_any_generation, "what became of a message is what became of its slot's newest") \
  M(keepalives_not_counted, "a dead peer is never given up") \
  M(one_keepalive, "the first unanswered keepalive ends everything") \
  M(third_attempt_fails, "a message fails when one of its packets was sent twice") \
  M(status_not_answered, "a question about a message is not answered") \
  M(losses_ignored, "a sender hears of a loss and does nothing") \
  M(first_lost_forgotten, "the first of the packets that are lost is not sent again") \
  M(asks_once, "a sender that hears nothing asks once") \
  M(rto_not_armed, "a sender whose packets are out sets no timer") \
  M(missing_is_first, "whatever is missing, the first packet is sent again") \
  M(missing_inverted, "what is here is taken for missing, and what is missing for here") \
  /* sack_session.cpp, sdr_sr.cpp, sdr_ec.cpp: SDR-RDMA */ \
  M(cumulative_chunk_too_far, "the first missing chunk is acknowledged") \
  M(chunk_timer_not_armed, "a chunk's timer ends once") \
  M(chunk_without_its_last_packet, "the last packet that is to be sent again is left out") \
  M(state_asked_for_once, "a sender that hears nothing asks once") \
  M(repeats_what_is_here, "what is sent again is what the receiver has") \
  M(never_falls_back, "a receiver waits for parity for ever") \
  M(never_decodes, "a receiver restores nothing") \
  /* packet_session.cpp, selective_repeat.cpp, irn.cpp, srnic.cpp */ \
  M(ack_one_too_many, "a receiver acknowledges one packet more than it has") \
  M(ends_before_last, "a send succeeds when all but one of its packets are acknowledged") \
  M(timeout_not_armed, "a flow has no retransmission timer") \
  M(sack_shifted, "a SACK's bits are those of the packets one further") \
  /* rack_tlp.cpp */ \
  M(rack_loss_forgotten, "a packet that counts as lost is not retransmitted") \
  M(rack_timer_not_armed, "a sender has no timer for losses, probes and timeouts") \
  /* dcp.cpp */ \
  M(dcp_front_kept, "a sender waits for ever for a retransmission that has left") \
  M(dcp_restart_ignored, "a message whose timer ended does not start again") \
  /* connection_session.cpp, ndp.cpp */ \
  M(ndp_pull_forgotten, "a receiver sends no pulls") \
  M(psn_of_next_acknowledged, "with a PSN the one behind it counts as acknowledged") \
  M(packet_timer_not_armed, "a packet has no retransmission timer") \
  M(packet_timeout_ignored, "a packet whose timer ended is not retransmitted") \
  /* uet_session.cpp, uet_rud.cpp, uet_rod.cpp */ \
  M(trimmed_acknowledged, "a NACK of a trimmed packet acknowledges it") \
  M(expected_one_too_many, "a NACK names the packet behind the expected one") \
  M(dropped_counts, "a packet that is dropped out of order counts as arrived") \
  /* mrc.cpp */ \
  M(mrc_base_left_out, "the oldest missing packet is not retransmitted when its timer ends") \
  /* uccl.cpp */ \
  M(uccl_timer_not_armed, "a connection has no timer") \
  M(uccl_oldest_left_out, "the oldest packet is never resent") \
  /* rc_requester.cpp, rc_responder.cpp: reliable connections */ \
  M(rc_gap_accepted, "a responder takes packets behind a gap") \
  M(rc_ack_one_too_many, "a responder acknowledges one PSN more than it has") \
  M(rc_timer_not_armed, "a requester has no retransmission timer") \
  M(rc_goes_back_too_little, "a requester goes back to the packet behind the one that is missed") \
  M(rc_duplicate_executed, "a responder executes a duplicate once more") \
  M(rc_retries_unlimited, "a requester never gives up") \
  /* striped_requester.cpp, striped_responder.cpp: their operations as striped messages */ \
  M(fence_ignored, "an operation with a fence does not wait for READs and atomics") \
  M(stale_connection_taken, "an operation of an earlier connection is taken") \
  M(last_packet_not_held, "the last packet of a WRITE is put in its place as soon as it arrives") \
  M(effects_out_of_order, "an operation takes effect before those ahead of it") \
  /* ../shift: failover of reliable connections */ \
  M(shift_counts_one_more, "a sender takes one request more for executed than the peer counts") \
  M(shift_counts_one_less, "a sender takes one request less for executed than the peer counts") \
  M(shift_notified_repeated, "a WRITE is repeated although its notification was executed") \
  M(shift_unsignaled_completes, "an executed request completes although nobody asked for it") \
  M(shift_atomic_repeated, "an atomic that may have been executed is repeated") \
  M(shift_lost_result_is_done, "a READ whose result is lost counts as done") \
  M(shift_receives_not_counted, "MOVE does not count what the queue pair that is left received") \
  M(shift_receives_reversed, "receives are posted to the backup in the wrong order") \
  M(shift_receives_forgotten, "receives are not posted to the backup") \
  M(shift_sends_do_not_wait, "requests are posted before the peer's MOVE is here") \
  M(shift_held_forgotten, "requests that were held during a move are never posted") \
  M(shift_keys_kept, "requests go to the backup with the default NIC's keys") \
  M(shift_psns_kept, "a queue pair that is used again begins with its first PSNs") \
  M(shift_probe_forgotten, "requests follow a failed probe with its PSN") \
  M(shift_fence_skipped, "an end says that it has drained without looking") \
  M(shift_resume_ignored, "an end never gives a failback up, nor when its peer does") \
  M(shift_waits_for_ever, "a peer that does not answer is waited for without end") \
  M(shift_moves_alone, "an end goes back although its peer has not drained") \
  M(shift_mailbox_stuck, "an end reads the same slot of its mailbox for ever") \
  M(shift_number_of_backup, "completions tell the number of the backup's queue pair") \
  /* dcqcn.cpp, swift.cpp: congestion control */ \
  M(dcqcn_stops, "a rate is cut to a bit a second") \
  M(swift_stops, "who may send less than a packet a round trip waits for thousands of them")
// clang-format on

#define SOFTROCE_MUTANT_NAME(name, description) name,
enum class Mutant : int { SOFTROCE_EACH_MUTANT(SOFTROCE_MUTANT_NAME) };
#undef SOFTROCE_MUTANT_NAME

#ifdef SOFTROCE_MUTANTS
extern Mutant chosen_mutant;
inline bool mutated(Mutant mutant) { return chosen_mutant == mutant; }
#else
constexpr bool mutated(Mutant) { return false; }
#endif

}  // namespace softroce
