// SPDX-License-Identifier: GPL-2.0-or-later
#include "qp_state.hpp"

namespace softroce {
namespace {

struct Attributes {
  std::uint32_t required, optional;
};

constexpr std::uint32_t kInitConnected = kAttrPkeyIndex | kAttrPort | kAttrAccess;
constexpr std::uint32_t kToRtr = kAttrAddress | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr std::uint32_t kRetries = kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxReads;
constexpr std::uint32_t kMigration = kAttrAlternatePath | kAttrMigration;

Attributes to_init(QpType type, bool again) {
  std::uint32_t attributes = kInitConnected;
  if (type == QpType::ud) attributes = kAttrPkeyIndex | kAttrPort | kAttrQkey;
  return again ? Attributes{0, attributes} : Attributes{attributes, 0};
}

Attributes to_rtr(QpType type) {
  constexpr std::uint32_t kOptional = kAttrAlternatePath | kAttrAccess | kAttrPkeyIndex;
  if (type == QpType::rc) return {kToRtr | kAttrMaxDestReads | kAttrMinRnrTimer, kOptional};
  if (type == QpType::uc) return {kToRtr, kOptional};
  return {0, kAttrPkeyIndex | kAttrQkey};
}

std::uint32_t optional_in_rts(QpType type) {
  if (type == QpType::rc) return kAttrCurState | kAttrAccess | kAttrMinRnrTimer | kMigration;
  if (type == QpType::uc) return kAttrCurState | kAttrAccess | kMigration;
  return kAttrCurState | kAttrQkey;
}

std::uint32_t optional_in_sqd(QpType type) {
  constexpr std::uint32_t kPath = kAttrAddress | kAttrAccess | kAttrPkeyIndex | kMigration;
  if (type == QpType::rc)
    return kPath | kAttrPort | kRetries | kAttrMaxDestReads | kAttrMinRnrTimer;
  return type == QpType::uc ? kPath : kAttrPkeyIndex | kAttrQkey;
}

// Nothing: there is no such transition.
bool attributes_of(QpType type, QpState from, QpState to, Attributes& attributes) {
  using enum QpState;
  attributes = {0, 0};
  if (to == reset || to == err) return true;
  if (to == init && (from == reset || from == init)) {
    attributes = to_init(type, from == init);
    return true;
  }
  if (to == rtr && from == init) {
    attributes = to_rtr(type);
    return true;
  }
  if (to == rts && from == rtr) {
    attributes = {type == QpType::rc ? kAttrSqPsn | kRetries : kAttrSqPsn, optional_in_rts(type)};
    return true;
  }
  if (to == rts && (from == rts || from == sqd || (from == sqe && type != QpType::rc))) {
    attributes = {0, optional_in_rts(type)};
    return true;
  }
  if (to == sqd && from == rts) {
    attributes = {0, kAttrSqdNotify};
    return true;
  }
  if (to == sqd && from == sqd) {
    attributes = {0, optional_in_sqd(type)};
    return true;
  }
  return false;
}

}  // namespace

bool transition_is_ok(QpType type, QpState from, QpState to, std::uint32_t mask) {
  Attributes attributes{};
  if (!attributes_of(type, from, to, attributes)) return false;
  if ((mask & kAttrCurState) && from != QpState::rtr && from != QpState::rts &&
      from != QpState::sqd && from != QpState::sqe)
    return false;
  if ((mask & attributes.required) != attributes.required) return false;
  return (mask & ~(attributes.required | attributes.optional | kAttrState)) == 0;
}

}  // namespace softroce
