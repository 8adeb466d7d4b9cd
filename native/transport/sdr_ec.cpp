// SPDX-License-Identifier: GPL-2.0-or-later
// `sdr_ec`: SDR-RDMA's erasure coding (arXiv 2505.05366), parity instead of retransmissions.
//
// [S], what the paper states: a submessage has k chunks of data and m of parity, (32, 8) by
// default. The receiver acknowledges a message when all of it can be decoded. A fallback timer of
// FTO = (M + ceil(M / R)) T_inj + beta RTT, R = k / m, runs from the first bit. When it ends, the
// receiver sends a NACK of the submessages that cannot be decoded, and selective repeat carries
// them.
//
// [D], this project's definition, is the rest: parity lies behind the data in the packets of a
// message (native/engine/striped/coding.hpp). A submessage is decoded as soon as it can be. FTO
// does not end while packets arrive less than beta RTT apart. After it the receiver sends SACKs as
// that of `sdr_sr` does, and the sender retransmits missing chunks, each after the RTO of `sdr_sr`.
// A sender that receives nothing asks for the state of the message.
#include "sdr_ec.hpp"

#include <algorithm>
#include <utility>

#include "../engine/mutant.hpp"
#include "transports.hpp"

namespace softroce {
namespace {

// Of coding, in a turn of an engine whose clock runs: packets wait meanwhile. The clock is read
// after each step, which works on a cache line of every chunk.
constexpr std::int64_t kSliceNs = 10'000;
constexpr std::size_t kStepBytes = 64;

// One for each path MTU in it, whatever their headers take.
std::uint32_t packets_of_chunk(const MessageConfig& config) {
  return static_cast<std::uint32_t>(option_of<std::int64_t>(config, "chunk") / config.path_mtu);
}

}  // namespace

SdrEc::SdrEc(MessageEngine& engine)
    : SdrSr(engine, packets_of_chunk(engine.config())),
      xor_(config().options.contains("code") && option<std::string>("code") == "xor"),
      beta_(option<double>("beta")) {}

Figures SdrEc::figures() const {
  Figures all = SdrSr::figures();
  all.insert(all.end(), {{"restored", restored_}, {"fallbacks", fallbacks_}});
  return all;
}

// ---------------------------------------------------------------- sender: parity

void SdrEc::send_posted(SendMessage& message) {
  SdrSr::send_posted(message);
  encode(message, 0);
}

void SdrEc::parity_released(SendMessage& message, std::uint32_t submessage) {
  encode(message, submessage + 1);
}

// One submessage; the next follows when it is done.
void SdrEc::encode(SendMessage& message, std::uint32_t submessage) {
  const CodeLayout& layout = message.coded.layout;
  if (!layout.coded() || submessage >= layout.submessages()) return;
  decide(DecisionKind::encode);
  auto work = Coding::encode(message, submessage, code_of(layout.submessage(submessage)));
  if (work) begin({message.handle, submessage, std::move(*work)});
}

// ---------------------------------------------------------------- sender: fallback

// Whether selective repeat carries it: there is no parity, or the receiver has fallen back.
bool SdrEc::repeats(const SendMessage& message) {
  return !message.coded.layout.coded() || known_missing(message).has_value();
}

// The RTO of `sdr_sr`, and until the receiver has fallen back longer than that takes.
Nanoseconds SdrEc::quiet_ns(const SendMessage& message) {
  const auto srtt_ns = static_cast<double>(rtt(message.peer).srtt_ns);
  return rto_ns(message) + static_cast<Nanoseconds>(beta_ * srtt_ns);
}

// Turns without effect back off, too: at one interval, a periodic outage may meet each of them.
void SdrEc::sent(SendMessage& message) {
  if (repeats(message)) return;  // chunks have timers of their own
  Chunks& own = chunks(message);
  std::uint32_t attempts = 1;
  for (std::uint32_t packet = 0; packet < message.count; ++packet)
    if (own.missing[packet / chunk_packets()])
      attempts = std::max<std::uint32_t>(attempts, message.sent[packet].attempts());
  own.timeouts = attempts - 1;  // what was asked before concerned the turn before
  set_timer(message, now_ns() + quiet_ns(message));
}

// Retransmits what is missing and was sent a round trip ago: the NACK names no other. Of a message
// without parity the SACKs come from the first packet on, and are no NACKs.
void SdrEc::feedback_arrived(SendMessage& message) {
  SdrSr::feedback_arrived(message);
  if (!message.coded.layout.coded() || message.retransmit_pending != 0) return;
  const Nanoseconds before_ns = now_ns() - rtt(message.peer).srtt_ns;
  std::vector<SentChunk> lost = outstanding(message);
  std::erase_if(lost, [&](const SentChunk& each) { return each.sent_ns > before_ns; });
  set_timer(message, now_ns() + (repeats(message) ? rto_ns(message) : quiet_ns(message)));
  retransmit_sent(message, packets_of(message, lost));
}

void SdrEc::send_timer(SendMessage& message) {
  if (repeats(message)) return SdrSr::send_timer(message);
  Nanoseconds last_ns = 0;  // of data: parity leaves behind it without a wait
  for (std::uint32_t packet = 0; packet < message.count; ++packet)
    last_ns = std::max(last_ns, message.sent[packet].at_ns());
  const Nanoseconds until_ns = last_ns + quiet_ns(message);
  if (message.next != 0 && now_ns() < until_ns)  // packets are leaving: the receiver's FTO runs
    return set_timer(message, until_ns);
  ++chunks(message).timeouts;
  if (!mutated(Mutant::state_asked_for_once)) set_timer(message, now_ns() + quiet_ns(message));
  probe_receiver(message);
}

// ---------------------------------------------------------------- receiver

// What a message takes to arrive, at the rate of the port; without the RTTs behind it. [S]
Nanoseconds SdrEc::fto_ns(const ReceiveMessage& message) const {
  const auto bits = static_cast<unsigned __int128>(message.total()) * chunk_bytes() * 8;
  return static_cast<Nanoseconds>(bits * 1'000'000'000 / config().line_rate_bps);
}

// beta RTT [S]; at least what a machine delays packets by.
Nanoseconds SdrEc::slack_ns(PeerIndex peer) const {
  const auto srtt_ns = static_cast<double>(reported_rtt(peer).srtt_ns);
  const Nanoseconds least_ns = beta_ != 0 ? timing().reordering_window_least_ns : 0;
  return std::max(static_cast<Nanoseconds>(beta_ * srtt_ns), least_ns);
}

// FTO begins. No interval of SACKs is set until it ends.
void SdrEc::first_packet(ReceiveMessage& message) {
  if (!message.coded.layout.coded()) return SdrSr::first_packet(message);
  interval_of(message) = 0;
  set_timer(message, message.first_at / kNanosecond + fto_ns(message) + slack_ns(message.peer));
}

void SdrEc::last_packet(ReceiveMessage& message) {
  if (interval_of(message) != 0) SdrSr::last_packet(message);
}

void SdrEc::receive_timer(ReceiveMessage& message) {
  if (interval_of(message) != 0) return SdrSr::receive_timer(message);
  const Nanoseconds arrived_ns = message.first_at / kNanosecond + fto_ns(message);
  const Nanoseconds due_ns =
      std::max(arrived_ns, message.last_at / kNanosecond) + slack_ns(message.peer);
  if (mutated(Mutant::never_falls_back)) return;
  if (now_ns() < due_ns) return set_timer(message, due_ns);
  ++fallbacks_;
  interval_of(message) = sack_interval_ns(message.peer);
  send_feedback(message);
  set_timer(message, now_ns() + interval_of(message));
}

void SdrEc::chunk_arrived(ReceiveMessage& message, std::uint32_t submessage) {
  const CodeLayout::Submessage part = message.coded.layout.submessage(submessage);
  if (message.coded.data_there[submessage] == part.data_chunks) return;  // meanwhile
  const auto same = [&](const Job& job) {
    return job.message == message.handle && job.submessage == submessage;
  };
  if (std::ranges::any_of(jobs_, same)) return;
  auto work = Coding::restore(message, submessage, code_of(part));
  if (!work || mutated(Mutant::never_decodes)) return;
  ++restored_;
  decide(DecisionKind::restore);
  begin({message.handle, submessage, std::move(*work)});
}

// ---------------------------------------------------------------- coding

const ErasureCode& SdrEc::code_of(const CodeLayout::Submessage& part) {
  std::unique_ptr<ErasureCode>& code = codes_[{part.data_chunks, part.parity_chunks}];
  if (code == nullptr)
    code = xor_ ? make_xor_code(part.data_chunks, part.parity_chunks)
                : make_mds_code(part.data_chunks, part.parity_chunks, false);
  return *code;
}

// On a clock that is moved by hand no time passes while it works.
void SdrEc::begin(Job job) {
  if (clock_ns_ != nullptr) return jobs_.push_back(std::move(job));
  job.work.finish();
  end(job, now());
}

void SdrEc::end(const Job& job, Time now) {
  if (job.message & kReceiveTag)
    engine().restored(job.message, job.submessage, now);
  else
    engine().release_parity(job.message, job.submessage, now);
}

bool SdrEc::turn(Time now) {
  const bool handled = SdrSr::turn(now);
  return work_a_slice(now) || handled;
}

// False: there is no work.
bool SdrEc::work_a_slice(Time now) {
  if (jobs_.empty()) return false;
  const std::int64_t until_ns = clock_ns_() + kSliceNs;
  do {
    Job& job = jobs_.front();
    const bool is_over = job.message & kReceiveTag ? engine().find_receive(job.message) == nullptr
                                                   : engine().find_send(job.message) == nullptr;
    if (!is_over && !job.work.advance(kStepBytes)) continue;
    if (!is_over) end(job, now);
    jobs_.pop_front();
  } while (!jobs_.empty() && clock_ns_() < until_ns);
  return true;
}

// ---------------------------------------------------------------- what it is

namespace {

std::vector<CodeShape> code_of_options(const Options& options) {
  const auto number = [&](const char* name) { return std::get<std::int64_t>(options.at(name)); };
  const std::int64_t k = number("k"), m = number("m");
  if (k + m > std::int64_t{kMostCodeChunks})
    throw OptionMistake(
        "m",
        "option 'm': k + m is " + std::to_string(k + m) + ", more than " +
            std::to_string(kMostCodeChunks),
        "with k = " + std::to_string(k) + ": at most " + std::to_string(kMostCodeChunks - k));
  if (std::get<std::string>(options.at("code")) == "xor" && m > k)
    throw OptionMistake("m",
                        "option 'm': " + std::to_string(m) +
                            " chunks of parity for k = " + std::to_string(k) + " chunks of data",
                        "xor has at most k");
  return {{static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(m)}};
}

}  // namespace

std::vector<Option> coding_options() {
  return {{.name = "chunk",
           .usual = std::int64_t{64 << 10},
           .help = "bytes of a chunk: path MTUs in all",
           .unit = "bytes",
           .least = 256,
           .most = 4 << 20},
          {.name = "beta",
           .usual = 1.0,
           .help = "RTTs that the fallback timer waits behind the last packet",
           .least = 0,
           .most = 100}};
}

Transport sdr_ec_transport() {
  Transport made{.name = "sdr_ec",
                 .make = make<SdrEc>,
                 .framings = {"uc_immediate", "ud"},
                 .options = {{.name = "code",
                              .usual = std::string("mds"),
                              .help = "erasure code of a submessage",
                              .choices = {"mds", "xor"}},
                             {.name = "k",
                              .usual = std::int64_t{32},
                              .help = "chunks of data in a submessage",
                              .least = 1,
                              .most = kMostCodeChunks - 1},
                             {.name = "m",
                              .usual = std::int64_t{8},
                              .help = "chunks of parity in a submessage",
                              .least = 1,
                              .most = kMostCodeChunks - 1}},
                 .has_rto = true,
                 .sends_sacks = true,
                 .codes = code_of_options};
  for (Option& each : coding_options()) made.options.push_back(std::move(each));
  return made;
}

}  // namespace softroce
