// SPDX-License-Identifier: GPL-2.0-or-later
#include "config_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <stdexcept>
#include <utility>

#include "../../../xdp/lab_wire.h"

namespace softroce {
namespace {

constexpr std::string_view kOption = "options.";
constexpr std::string_view kNoCodes = "none";
constexpr std::size_t kGidDigits = 16;  // of each half

// `take` reads a value into a field. It returns what the value should have been; empty: the value
// was taken.

template <typename Number, typename... Base>
bool parse(std::string_view text, Number& to, Base... base) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, to, base...);
  return error == std::errc{} && stop == end;
}

template <std::integral Number>
std::string take(std::string_view text, Number& to, Number least, Number most) {
  Number value{};
  if (!parse(text, value) || value < least || value > most)
    return "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  to = value;
  return {};
}

template <std::integral Number>
std::string take(std::string_view text, Number& to) {
  using Limits = std::numeric_limits<Number>;
  return take(text, to, Limits::min(), Limits::max());
}

std::string take(std::string_view text, bool& to) {
  if (text != "true" && text != "false") return "true or false";
  to = text == "true";
  return {};
}

bool is_writable(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char each) {
    return each > ' ' && each <= '~' && each != ',' && each != '"';
  });
}

std::string take(std::string_view text, std::string& to) {
  if (!is_writable(text)) return "a text without spaces, commas and quotes";
  to = text;
  return {};
}

std::string take(std::string_view text, Gid& to) {
  Gid value;
  if (text.size() != 2 * kGidDigits || !parse(text.substr(0, kGidDigits), value.high, 16) ||
      !parse(text.substr(kGidDigits), value.low, 16))
    return "a GID of 32 hexadecimal digits";
  to = value;
  return {};
}

bool parse_shape(std::string_view text, CodeShape& to) {
  const std::size_t plus = text.find('+');
  return plus != std::string_view::npos && parse(text.substr(0, plus), to.data_chunks) &&
         parse(text.substr(plus + 1), to.parity_chunks);
}

std::string take(std::string_view text, std::vector<CodeShape>& to) {
  std::vector<CodeShape> shapes;
  for (std::size_t begin = 0; text != kNoCodes && begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (!parse_shape(text.substr(begin, end - begin), shapes.emplace_back()))
      return "codes such as 32+8/16+8, or none";
    begin = end + 1;
  }
  to = std::move(shapes);
  return {};
}

std::string take(std::string_view text, OptionValue& to) {
  bool truth{};
  std::int64_t number{};
  double real{};
  std::string word;
  const bool is_quoted = text.size() > 2 && text.front() == '"' && text.back() == '"';
  if (take(text, truth).empty())
    to = truth;
  else if (parse(text, number))
    to = number;
  else if (parse(text, real) && std::isfinite(real))
    to = real;
  else if (is_quoted && take(text.substr(1, text.size() - 2), word).empty())
    to = std::move(word);
  else
    return "true, false, a number, or a text in double quotes";
  return {};
}

// `written` is the inverse of `take`.

template <std::integral Number>
std::string written(Number value) {
  return std::to_string(value);
}

std::string written(bool value) { return value ? "true" : "false"; }

std::string written(const std::string& text) {
  if (!is_writable(text)) throw std::invalid_argument("'" + text + "' cannot be written");
  return text;
}

template <typename Number, typename... Base>
std::string digits_of(Number value, Base... base) {
  char digits[32];
  return {digits, std::to_chars(digits, std::end(digits), value, base...).ptr};
}

// A number without a point would be read as a whole one.
std::string written(double value) {
  if (!std::isfinite(value)) throw std::invalid_argument("an option is no finite number");
  const std::string digits = digits_of(value);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

std::string written(const Gid& gid) {
  std::string text;
  for (const std::uint64_t half : {gid.high, gid.low}) {
    const std::string digits = digits_of(half, 16);
    text += std::string(kGidDigits - digits.size(), '0') + digits;
  }
  return text;
}

std::string written(const std::vector<CodeShape>& shapes) {
  std::string text;
  for (const CodeShape& each : shapes) {
    if (!text.empty()) text += '/';
    text += std::to_string(each.data_chunks) + "+" + std::to_string(each.parity_chunks);
  }
  return shapes.empty() ? std::string(kNoCodes) : text;
}

std::string written(const OptionValue& option) {
  const auto* word = std::get_if<std::string>(&option);
  if (word != nullptr) return '"' + written(*word) + '"';
  return std::visit([](const auto& value) { return written(value); }, option);
}

// ---------------------------------------------------------------- the table

enum class Needed { here, at_both_ends };  // with the same value

struct Field {
  const char* name;
  Needed needed;
  std::string (*text)(const MessageConfig&);
  std::string (*take)(MessageConfig&, std::string_view);  // as `take` above
};

template <auto member>
constexpr Field field(const char* name, Needed needed = Needed::here) {
  return {name, needed, [](const MessageConfig& config) { return written(config.*member); },
          [](MessageConfig& config, std::string_view value) {
            return softroce::take(value, config.*member);
          }};
}

// In nanoseconds. An engine's time cannot be negative.
template <auto member>
constexpr Field duration(const char* name) {
  return {name, Needed::here,
          [](const MessageConfig& config) { return written(config.*member / kNanosecond); },
          [](MessageConfig& config, std::string_view value) {
            Time ns{};
            std::string mistake =
                softroce::take(value, ns, Time{0}, std::numeric_limits<Time>::max() / kNanosecond);
            if (mistake.empty()) config.*member = ns * kNanosecond;
            return mistake;
          }};
}

template <auto member>
constexpr Field timing(const char* name) {
  return {name, Needed::here,
          [](const MessageConfig& config) { return written(config.timing.*member); },
          [](MessageConfig& config, std::string_view value) {
            return softroce::take(value, config.timing.*member);
          }};
}

template <auto member>
constexpr Field code(const char* name) {
  return {name, Needed::at_both_ends,
          [](const MessageConfig& config) { return written(config.code.*member); },
          [](MessageConfig& config, std::string_view value) {
            return softroce::take(value, config.code.*member);
          }};
}

// What both ends need, and why:
//   transport, without, path_probes, framing, connection_epoch, carries_payload,
//   carries_operations, options: which packets there are, and what is in them
//   path_mtu: the place of a packet is its index times what a packet carries
//   paths, message_slots, codes, first_message_id: the receiver's tables are made for them
//   congestion_control: the receiver sends CNPs, grants, or small reports
//   window_packets: LossDetector::most_ahead refuses numbers that lead by four windows
// All else is used at one end: addresses, rings, what the port is like, the order in which
// messages leave, and timers. Where a receiver's timer depends on its sender, packets carry the
// sender's SRTT.
constexpr Needed kShared = Needed::at_both_ends;

constexpr Field kFields[] = {
    field<&MessageConfig::transport>("transport", kShared),
    field<&MessageConfig::carries_operations>("carries_operations", kShared),
    field<&MessageConfig::gid>("address"),
    field<&MessageConfig::path_mtu>("path_mtu", kShared),
    field<&MessageConfig::paths>("paths", kShared),
    field<&MessageConfig::message_slots>("message_slots", kShared),
    field<&MessageConfig::first_message_id>("first_message_id", kShared),
    field<&MessageConfig::connection_epoch>("connection_epoch", kShared),
    field<&MessageConfig::path_probes>("path_probes", kShared),
    field<&MessageConfig::without>("without", kShared),
    field<&MessageConfig::framing>("framing", kShared),
    field<&MessageConfig::carries_payload>("carries_payload", kShared),
    code<&CodeConfig::chunk_packets>("code_chunk_packets"),
    code<&CodeConfig::shapes>("codes"),
    field<&MessageConfig::congestion_control>("congestion_control", kShared),
    field<&MessageConfig::window_packets>("window_packets", kShared),
    field<&MessageConfig::most_unacked>("most_unacked"),
    field<&MessageConfig::receive_ring_packets>("receive_ring_packets"),
    field<&MessageConfig::report_every_packets>("report_every_packets"),
    field<&MessageConfig::schedule>("schedule"),
    field<&MessageConfig::line_rate_bps>("line_rate_bps"),
    field<&MessageConfig::timeout_measured>("timeout_measured"),
    duration<&MessageConfig::report_least_interval>("report_least_interval_ns"),
    duration<&MessageConfig::initial_rtt>("initial_rtt_ns"),
    duration<&MessageConfig::persist_least>("persist_least_ns"),
    duration<&MessageConfig::packet_lifetime>("packet_lifetime_ns"),
    duration<&MessageConfig::rto_low>("rto_low_ns"),
    duration<&MessageConfig::rto_high>("rto_high_ns"),
    duration<&MessageConfig::timeout>("timeout_ns"),
    duration<&MessageConfig::base_rtt>("base_rtt_ns"),
    duration<&MessageConfig::cnp_interval>("cnp_interval_ns"),
    duration<&MessageConfig::target_delay>("target_delay_ns"),
    duration<&MessageConfig::hop_delay>("hop_delay_ns"),
    duration<&MessageConfig::pacing_slack>("pacing_slack_ns"),
    timing<&SessionTiming::t_min_ns>("timing.t_min_ns"),
    timing<&SessionTiming::clock_granularity_ns>("timing.clock_granularity_ns"),
    timing<&SessionTiming::t_max_ns>("timing.t_max_ns"),
    timing<&SessionTiming::srtt_weight>("timing.srtt_weight"),
    timing<&SessionTiming::rttvar_weight>("timing.rttvar_weight"),
    timing<&SessionTiming::lost_rttvar_weight>("timing.lost_rttvar_weight"),
    timing<&SessionTiming::rto_srtt>("timing.rto_srtt"),
    timing<&SessionTiming::fixed_rto_ns>("timing.fixed_rto_ns"),
    timing<&SessionTiming::rto_rttvar_weight>("timing.rto_rttvar_weight"),
    timing<&SessionTiming::reordering_window_least_ns>("timing.reordering_window_least_ns"),
    timing<&SessionTiming::sack_interval_least_ns>("timing.sack_interval_least_ns"),
    timing<&SessionTiming::ack_delay_most_ns>("timing.ack_delay_most_ns"),
    timing<&SessionTiming::acks_in_batch>("timing.acks_in_batch"),
    timing<&SessionTiming::keepalive_interval_ns>("timing.keepalive_interval_ns"),
    timing<&SessionTiming::keepalive_interval_most_ns>("timing.keepalive_interval_most_ns"),
    timing<&SessionTiming::keepalive_probes>("timing.keepalive_probes"),
    timing<&SessionTiming::eager_rounds>("timing.eager_rounds"),
    timing<&SessionTiming::most_attempts>("timing.most_attempts"),
    timing<&SessionTiming::rnr_retry>("timing.rnr_retry"),
};

struct Punctuation {
  char behind_name, behind_value;
};

constexpr Punctuation punctuation_of(TextForm form) {
  return form == TextForm::lines ? Punctuation{' ', '\n'} : Punctuation{'=', ','};
}

bool is_identifier(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char each) {
    return (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') || each == '_';
  });
}

// `all`: also what is needed at one end.
std::string text_of(const MessageConfig& config, bool all, Punctuation marks) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += name + marks.behind_name + value + marks.behind_value;
  };
  for (const Field& each : kFields)
    if (all || each.needed == Needed::at_both_ends) add(each.name, each.text(config));
  for (const auto& [name, value] : config.options) add(std::string(kOption) + name, written(value));
  return text;
}

}  // namespace

std::string write_config(const MessageConfig& config, TextForm form) {
  std::string text = text_of(config, true, punctuation_of(form));
  if (form == TextForm::one_line) text.pop_back();
  return text;
}

void set_field(MessageConfig& config, std::string_view name, std::string_view value) {
  std::string mistake;
  if (name.starts_with(kOption) && is_identifier(name.substr(kOption.size()))) {
    OptionValue option;
    mistake = take(value, option);
    config.options.insert_or_assign(std::string(name.substr(kOption.size())), std::move(option));
  } else {
    const auto* found = std::ranges::find(kFields, name, &Field::name);
    if (found == std::end(kFields))
      throw std::invalid_argument("'" + std::string(name) + "' is not a setting of the engine");
    mistake = found->take(config, value);
  }
  if (!mistake.empty())
    throw std::invalid_argument(std::string(name) + ": '" + std::string(value) + "' is not " +
                                mistake);
}

MessageConfig read_config(std::string_view text, TextForm form) {
  const Punctuation marks = punctuation_of(form);
  MessageConfig config;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(marks.behind_value));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    const std::size_t end = std::min(entry.find(marks.behind_name), entry.size());
    set_field(config, entry.substr(0, end), entry.substr(std::min(end + 1, entry.size())));
  }
  return config;
}

// FNV-1a of 64 bits: a hash against mistakes. An attacker can say any number anyway.
std::uint64_t digest_of(const MessageConfig& config) {
  const std::string versions =
      "version " + written(LAB_HDR_VERSION) + " " + written(LAB_OPERATION_VERSION) + "\n";
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char each : versions + text_of(config, false, punctuation_of(TextForm::lines)))
    hash = (hash ^ static_cast<std::uint8_t>(each)) * 0x100000001B3;
  return hash;
}

}  // namespace softroce
