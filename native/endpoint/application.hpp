// SPDX-License-Identifier: GPL-2.0-or-later
// A program that runs where the engine runs: between a packet and it lies neither a switch of
// threads nor Python.
#pragma once

#include <memory>

#include "../engine/rnic/rnic.hpp"

namespace softroce {

// What comes from Python is shared by `shared_from_this` alone, so that the engine's thread never
// releases a Python object.
class Application : public std::enable_shared_from_this<Application> {
 public:
  virtual ~Application() = default;
  // Called every turn of the engine, behind what has arrived and before what leaves; must not wait.
  // False: there was nothing to do.
  virtual bool turn(Rnic& rnic, Time now) = 0;
  virtual bool spins() const = 0;  // the engine does not sleep meanwhile
};

}  // namespace softroce
