// What the shim keeps of one device.
#pragma once
#include <atomic>
#include <mutex>

#include "core.h"
#include "figures.h"
#include "history.h"
#include "limit.h"
#include "pools.h"

namespace stalloc {

struct Device {
  Device(const StallocCore* table, int number)
      : core(table),
        index(c10::DeviceIndex(number)),
        figures(table, number),
        history(number),
        limit(table, number),
        pools(table, number) {}

  const StallocCore* core;
  c10::DeviceIndex index;
  Figures figures;
  History history;
  Limit limit;
  Pools pools;
  std::once_flag limit_is_known;
  std::atomic<int> redirected{0};  // private pools that are being allocated to
  std::atomic<int> captures{0};
  std::atomic<bool> is_arena_told{false};  // to those who are told of segments
  std::atomic<int64_t> out_of_memory{0};   // exceptions that the program got; the native allocator counts its attempts

  Attempts again;  // to serve what was asked for before

  // Gives the arena's idle memory back; returns the bytes.
  template <typename MakeNotes>
  uint64_t trim(MakeNotes&& notes) {
    const uint64_t bytes = core->trim(index);
    if (History::any_enabled()) history.memory_changed(core, RecordContext::ALL, notes);
    return bytes;
  }
};

}  // namespace stalloc
