// PyTorch's statistics of one device, with the arena's share in them.
#pragma once
#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "core.h"
#include "versions.h"

namespace stalloc {

using figures::DeviceStats;
using figures::Stat;
using figures::StatArray;

constexpr size_t AGGREGATE = 0, SMALL = 1, LARGE = 2;

// Statistics that both sides have, and whose peaks are of their sum.
constexpr StatArray DeviceStats::* kSums[] = {
    &DeviceStats::allocation,     &DeviceStats::active,       &DeviceStats::segment,        &DeviceStats::allocated_bytes,
    &DeviceStats::reserved_bytes, &DeviceStats::active_bytes, &DeviceStats::requested_bytes};

// The native allocator's figures as last read, and the peaks of the sum of both sides.
//
// The arena's own peaks are counted from one change of the native figures to the next. While those stand still, the peak
// of a sum is theirs and the arena's peak: so a request that the arena serves adds up nothing.
class Figures {
 public:
  Figures(const StallocCore* table, int device) : core(table), index(device) {}

  // The native figures may be others now. Called under the native allocator's lock.
  void outside_changes() { changed.store(true, std::memory_order_relaxed); }
  bool is_outside_changed() const { return changed.load(std::memory_order_relaxed); }

  // `read` reads the native figures: called with no lock held.
  template <typename Read>
  void refresh(Read&& read) {
    changed.store(false, std::memory_order_relaxed);
    DeviceStats now = read();
    core->fallback_holds(index, uint64_t(now.reserved_bytes[AGGREGATE].current),
                         uint64_t(now.allocated_bytes[AGGREGATE].current));
    std::lock_guard<std::mutex> lock(mutex);
    begin_stretch(end_stretch(), now);
  }

  // The native figures with the arena's share.
  DeviceStats sum(DeviceStats stats) {
    std::lock_guard<std::mutex> lock(mutex);
    auto arena = end_stretch();
    begin_stretch(arena, stats);
    for (auto member : kSums)
      for (size_t type : {AGGREGATE, SMALL, LARGE}) {
        auto& out = (stats.*member)[type];
        const auto& ours = (arena.*member)[type];
        out.current += ours.current;
        out.allocated += ours.allocated;
        out.freed += ours.freed;
        // The native peak alone can be higher: of the time before the arena was looked at.
        out.peak = std::max(out.peak, (peaks.*member)[type].peak);
      }
    stats.num_device_alloc += arena.num_device_alloc;
    stats.num_device_free += arena.num_device_free;
    return stats;
  }

  void reset_totals() {
    std::lock_guard<std::mutex> lock(mutex);
    end_stretch();
    core->counters(index, nullptr, 0, 1);
  }

  void reset_peaks(const DeviceStats& now) {
    std::lock_guard<std::mutex> lock(mutex);
    auto arena = end_stretch();
    peaks = DeviceStats();
    begin_stretch(arena, now);
  }

  // Bytes in use and bytes held, of both sides.
  std::pair<uint64_t, uint64_t> totals() {
    StallocCounters arena{};
    core->counters(index, &arena, 0, 0);
    std::lock_guard<std::mutex> lock(mutex);
    return {uint64_t(outside.allocated_bytes[AGGREGATE].current) + arena.all.bytes.current,
            uint64_t(outside.reserved_bytes[AGGREGATE].current) + arena.reserved.current};
  }

 private:
  const StallocCore* core;
  int index;
  std::atomic<bool> changed{true};
  std::mutex mutex;
  DeviceStats outside;
  DeviceStats peaks;  // .peak alone

  // The arena's figures as PyTorch lays them out, with its memory in the large pool. What is mapped by pages counts as an
  // expandable segment does: in no figure of segments or of what is split. A solid one is a segment. The lock is held.
  DeviceStats laid_out(const StallocCounters& counters) {
    DeviceStats stats;
    auto set = [](Stat& stat, const StallocCounter& counter) {
      stat.current = int64_t(counter.current);
      stat.peak = int64_t(counter.peak);
      stat.allocated = int64_t(counter.allocated);
      stat.freed = int64_t(counter.freed);
    };
    const StallocPool* pools[] = {&counters.all, &counters.small, &counters.large};
    for (size_t type : {AGGREGATE, SMALL, LARGE}) {
      const auto& pool = *pools[type];
      set(stats.allocation[type], pool.blocks);
      set(stats.active[type], pool.blocks);
      set(stats.allocated_bytes[type], pool.bytes);
      set(stats.active_bytes[type], pool.bytes);
      set(stats.requested_bytes[type], pool.requested);
    }
    for (size_t type : {AGGREGATE, LARGE}) set(stats.reserved_bytes[type], counters.reserved);
    stats.num_device_alloc = int64_t(counters.grown);
    stats.num_device_free = int64_t(counters.shrunk);
    if (core->is_solid(index) == 1) {
      for (size_t type : {AGGREGATE, LARGE}) {
        auto& segment = stats.segment[type];
        segment.current = counters.reserved.current > 0;
        segment.peak = counters.reserved.peak > 0;
        segment.allocated = int64_t(counters.grown);
        segment.freed = int64_t(counters.shrunk);
      }
      return stats;
    }
    // What lies under small blocks counts as small. The large ones' peak stays: it is the most that it can have been.
    const Stat& small = stats.reserved_bytes[SMALL] = stats.allocated_bytes[SMALL];
    Stat& large = stats.reserved_bytes[LARGE];
    large.current -= small.current;
    large.allocated += small.freed;
    large.freed += small.allocated;
    return stats;
  }

  // Ends a stretch in which the native allocator's figures stood still: raises the peaks of the sum. The lock is held.
  DeviceStats end_stretch() {
    StallocCounters counters{};
    core->counters(index, &counters, 1, 0);
    auto arena = laid_out(counters);
    for (auto sum : kSums)
      for (size_t type : {AGGREGATE, SMALL, LARGE}) {
        auto& peak = (peaks.*sum)[type].peak;
        peak = std::max(peak, (arena.*sum)[type].peak + (outside.*sum)[type].current);
      }
    return arena;
  }

  // The same once the figures are others: the peak is at least what both are now.
  void begin_stretch(const DeviceStats& arena, const DeviceStats& now) {
    outside = now;
    for (auto sum : kSums)
      for (size_t type : {AGGREGATE, SMALL, LARGE}) {
        auto& peak = (peaks.*sum)[type].peak;
        peak = std::max(peak, (arena.*sum)[type].current + (now.*sum)[type].current);
      }
  }
};

}  // namespace stalloc
