// SPDX-License-Identifier: GPL-2.0-or-later
// Functions that C programs call throw nothing.
#pragma once

#include <cerrno>
#include <new>
#include <system_error>

namespace softroce::verbs {

// Runs a body that returns an errno value: what is thrown becomes one.
template <typename F>
int guarded(F&& body) noexcept {
  try {
    return body();
  } catch (const std::system_error& error) {
    return error.code().value();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (...) {
    return EIO;
  }
}

}  // namespace softroce::verbs
