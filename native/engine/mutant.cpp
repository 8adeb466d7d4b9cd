// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the module `_native_mutants` alone: what its tests call through ctypes.
#include "mutant.hpp"

namespace softroce {

Mutant chosen_mutant = Mutant::none;

namespace {

struct Described {
  const char* name;
  const char* description;
};

#define SOFTROCE_DESCRIBED(name, description) {#name, description},
constexpr Described kMutants[] = {SOFTROCE_EACH_MUTANT(SOFTROCE_DESCRIBED)};
#undef SOFTROCE_DESCRIBED
constexpr int kCount = sizeof kMutants / sizeof kMutants[0];

}  // namespace
}  // namespace softroce

#define SOFTROCE_CALLED extern "C" __attribute__((visibility("default")))

// Name and description of each, by number; null behind the last.
SOFTROCE_CALLED const char* softroce_mutant_name(int number) {
  return number < softroce::kCount ? softroce::kMutants[number].name : nullptr;
}

SOFTROCE_CALLED const char* softroce_mutant_description(int number) {
  return number < softroce::kCount ? softroce::kMutants[number].description : nullptr;
}

// From now on this mistake is made; 0: none.
SOFTROCE_CALLED void softroce_choose_mutant(int number) {
  softroce::chosen_mutant = static_cast<softroce::Mutant>(number);
}
