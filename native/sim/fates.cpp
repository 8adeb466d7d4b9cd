// SPDX-License-Identifier: GPL-2.0-or-later
#include "fates.hpp"

#include <stdexcept>

#include "fabric.hpp"

namespace softroce::sim {
namespace {

constexpr std::uint32_t kDrawn = LAB_EFFECT_DROP | LAB_EFFECT_CUT | LAB_EFFECT_CORRUPT |
                                 LAB_EFFECT_DUPLICATE | LAB_EFFECT_REORDER;

bool takes_down(const Rules& rules, std::uint64_t now_ns, lab_verdict& verdict) {
  const lab_fault_set& set = rules.set;
  for (std::uint32_t i = 0; i < set.count && set.rule[i].model == LAB_LINK_DOWN; ++i) {
    if (!lab_window_acts(&set.rule[i].window, now_ns)) continue;
    verdict.effects = set.rule[i].effects;
    verdict.rule_id[LAB_SLOT_DROP] = set.rule[i].rule_id;
    return true;
  }
  return false;
}

// Whether a rule took it that names packets: those do not count on the link.
bool was_named(const Rules& rules, const lab_verdict& verdict) {
  if ((verdict.effects & LAB_EFFECT_DROP) == 0) return false;
  for (std::uint32_t i = 0; i < rules.set.count; ++i)
    if (rules.set.rule[i].rule_id == verdict.rule_id[LAB_SLOT_DROP]) return false;
  return true;
}

}  // namespace

void Fates::add(std::uint64_t key, std::uint32_t rule_id, std::uint32_t effect) {
  Fate& fate = of_key_[key];
  fate.effects |= effect & kDrawn;
  for (std::uint32_t slot = 0; slot < 4; ++slot)
    if (effect & lab_effects_of_slot(slot)) fate.rule_id[slot] = rule_id;
}

void Fates::decide(std::uint64_t key, lab_verdict& verdict) const {
  const auto found = of_key_.find(key);
  if (found == of_key_.end()) return;
  verdict.effects = found->second.effects;
  for (std::uint32_t slot = 0; slot < 4; ++slot)
    verdict.rule_id[slot] = found->second.rule_id[slot];
}

void Fabric::keep_fates() { fates_ = std::make_unique<Fates>(); }

void Fabric::replay_fates(std::span<const std::uint64_t> keys, std::span<const std::uint32_t> rules,
                          std::span<const std::uint32_t> effects) {
  if (keys.size() != rules.size() || keys.size() != effects.size())
    throw std::invalid_argument("a rule and an effect for each key");
  keep_fates();
  fates_->replay();
  for (std::size_t each = 0; each < keys.size(); ++each)
    fates_->add(keys[each], rules[each], effects[each]);
  for (std::size_t link = 0; link < links_.size(); ++link) links_[link].watch();
}

void Fabric::name_fate(Load& load) { load.fate = fates_->name(describe_as_sent(load)); }

std::uint64_t Fabric::fate_key(FlightIndex index) {
  const Load& load = flights_.load(index);
  return Fates::key(load.fate, hop_of(index));
}

// How many switches it has passed.
std::uint32_t Fabric::hop_of(FlightIndex index) {
  return flights_.load(index).packet.hop_limit - flights_[index].hop_limit;
}

// As lab_fault_decide() does, but what rules draw for is known. A link that is down depends on the
// time alone, so it takes what comes. Jitter that goes by a packet's name is that of the name;
// other jitter goes by the number of packets on the link, and is not frozen.
void Fabric::replay_fate(FlightIndex index, Rules* rules, std::uint64_t now_ns,
                         lab_verdict& verdict) {
  if (rules != nullptr && takes_down(*rules, now_ns, verdict)) return;
  fates_->decide(fate_key(index), verdict);
  if (rules == nullptr || was_named(*rules, verdict)) return;
  const lab_packet packet = describe(flights_.load(index));
  lab_name_draws(&rules->state, &packet, &verdict);
  lab_draw_jitter(&rules->set, &verdict);
}

}  // namespace softroce::sim
