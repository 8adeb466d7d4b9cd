// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

namespace softroce {

// Anything that lends its bytes: the memory right behind them may not belong to the object.
class LentBytes {
 public:
  explicit LentBytes(nanobind::handle lender) {
    if (PyObject_GetBuffer(lender.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  ~LentBytes() { PyBuffer_Release(&view_); }
  LentBytes(const LentBytes&) = delete;
  LentBytes& operator=(const LentBytes&) = delete;
  const std::uint8_t* data() const { return static_cast<const std::uint8_t*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_;
};

}  // namespace softroce
