// SPDX-License-Identifier: GPL-2.0-or-later
// A binary heap of pointers. Each object knows its place, so that any of them can leave, or move
// when its rank has changed. No call allocates but the first ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace softroce {

inline constexpr std::uint32_t kNotQueued = UINT32_MAX;

// `Before::operator()(a, b)` orders two objects; `Place` is the member that holds an object's
// place, kNotQueued while it is not in the heap.
template <typename T, std::uint32_t T::*Place, typename Before>
class PlacedHeap {
 public:
  bool empty() const { return objects_.empty(); }
  T* first() const { return objects_.empty() ? nullptr : objects_.front(); }
  static bool holds(const T& object) { return object.*Place != kNotQueued; }

  void add(T& object) {
    objects_.push_back(&object);
    object.*Place = static_cast<std::uint32_t>(objects_.size() - 1);
    rise(object.*Place);
  }

  void remove(T& object) {
    const std::uint32_t at = object.*Place;
    object.*Place = kNotQueued;
    T* last = objects_.back();
    objects_.pop_back();
    if (last == &object) return;
    put(at, last);
    moved(*last);
  }

  // Its rank may have changed.
  void moved(T& object) {
    rise(object.*Place);
    sink(object.*Place);
  }

 private:
  void put(std::uint32_t at, T* object) {
    objects_[at] = object;
    object->*Place = at;
  }

  void rise(std::uint32_t at) {
    T* object = objects_[at];
    while (at != 0 && before_(*object, *objects_[(at - 1) / 2])) {
      put(at, objects_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    put(at, object);
  }

  void sink(std::uint32_t at) {
    T* object = objects_[at];
    for (std::uint32_t child = 2 * at + 1; child < objects_.size(); child = 2 * at + 1) {
      if (child + 1 < objects_.size() && before_(*objects_[child + 1], *objects_[child])) ++child;
      if (!before_(*objects_[child], *object)) break;
      put(at, objects_[child]);
      at = child;
    }
    put(at, object);
  }

  std::vector<T*> objects_;
  [[no_unique_address]] Before before_;
};

}  // namespace softroce
