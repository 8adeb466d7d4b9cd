// SPDX-License-Identifier: GPL-2.0-or-later
// Objects in a row, which hold the links to their neighbours: no call allocates.
#pragma once

namespace softroce {

template <typename T>
class LinkedList {
 public:
  T* first() const { return first_; }

  void add(T& object, bool first = false) {
    object.before = first ? nullptr : last_;
    object.behind = first ? first_ : nullptr;
    (object.before != nullptr ? object.before->behind : first_) = &object;
    (object.behind != nullptr ? object.behind->before : last_) = &object;
  }
  void remove(T& object) {
    (object.before != nullptr ? object.before->behind : first_) = object.behind;
    (object.behind != nullptr ? object.behind->before : last_) = object.before;
  }

 private:
  T *first_ = nullptr, *last_ = nullptr;
};

}  // namespace softroce
