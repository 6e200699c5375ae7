// Stands in front of PyTorch's allocator of pinned memory, from PyTorch 2.8 on, which is the first that lets it be replaced.
//
// What the core serves lies in its regions; everything else, and what graphs use that are being captured, is PyTorch's own. A
// block's context is its address, so that an address alone says whose it is.
#pragma once
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <functional>
#include <type_traits>
#include <utility>

#include "core.h"

namespace stalloc::pinned {

using c10::cuda::MempoolId_t;

// PyTorch's allocator, and what is its own part: history and segments. Older versions have neither.
template <typename Host, typename = void>
struct Forwarded : Host {
  Host* next;
  void remember(void*, size_t) {}
  void forget(void*) {}
};

// The signature of `record_history` as this version has it.
template <typename Host, typename Method>
struct Remembered;
template <typename Host, typename... Settings>
struct Remembered<Host, void (Host::*)(Settings...)> : Host {
  Host* next;
  void record_history(Settings... settings) { next->record_history(settings...); }
};

template <typename Host>
struct Forwarded<Host, std::void_t<decltype(&Host::record_external_register)>>
    : Remembered<Host, decltype(&Host::record_history)> {
  using Remembered<Host, decltype(&Host::record_history)>::next;
  std::atomic<bool> is_remembered{false};

  bool is_history_enabled() const { return next->is_history_enabled(); }
  auto get_segments() -> decltype(std::declval<Host&>().get_segments()) { return next->get_segments(); }
  auto get_traces() -> decltype(std::declval<Host&>().get_traces()) { return next->get_traces(); }
  void record_external_register(void* address, size_t size) { next->record_external_register(address, size); }
  void record_external_unregister(void* address) { next->record_external_unregister(address); }

  // A block of ours is a segment of its own there, as PyTorch's are.
  void remember(void* address, size_t size) {
    if (C10_LIKELY(!next->is_history_enabled())) return;
    is_remembered.store(true, std::memory_order_relaxed);
    next->record_external_register(address, size);
  }
  void forget(void* address) {
    if (C10_UNLIKELY(is_remembered.load(std::memory_order_relaxed))) next->record_external_unregister(address);
  }
};

template <typename Stat>
void add(Stat& stat, const StallocCounter& counter) {
  stat.current += int64_t(counter.current);
  stat.peak += int64_t(counter.peak);
  stat.allocated += int64_t(counter.allocated);
  stat.freed += int64_t(counter.freed);
}

template <typename Stat>
void add(Stat& stat, const StallocDurations& durations) {
  if (durations.shortest != 0 && (stat.min == 0 || int64_t(durations.shortest) < stat.min))
    stat.min = int64_t(durations.shortest);
  if (int64_t(durations.longest) > stat.max) stat.max = int64_t(durations.longest);
  stat.total += int64_t(durations.total);
  stat.count += int64_t(durations.count);
}

// From 2.10 on: what blocks take is active, what the allocator holds is allocated.
template <typename Stats>
auto add(Stats& stats, const StallocPinned& ours, int) -> decltype(void(stats.active_bytes)) {
  add(stats.active_requests, ours.blocks);
  add(stats.active_bytes, ours.bytes);
  add(stats.allocations, ours.regions);
  add(stats.allocated_bytes, ours.reserved);
}
// Before: what blocks take is allocated, what the allocator holds is reserved.
template <typename Stats>
void add(Stats& stats, const StallocPinned& ours, long) {
  add(stats.allocation, ours.blocks);
  add(stats.allocated_bytes, ours.bytes);
  add(stats.segment, ours.regions);
  add(stats.reserved_bytes, ours.reserved);
}

template <typename Host>
struct Front final : Forwarded<Host> {
  using Forwarded<Host>::next;
  using Forwarded<Host>::remember;

  const StallocCore* core;
  inline static Front* installed = nullptr;  // never destroyed: tensors outlive static destruction

  Front(const StallocCore* table, Host* native) : core(table) { next = native; }

  c10::DataPtr allocate(size_t size) {
    if (void* address = size == 0 ? nullptr : core->pinned_serve(device(), size)) {
      remember(address, size);
      return {address, address, &release, c10::DeviceType::CPU};
    }
    return next->allocate(size);
  }

  // A GPU that the process uses already: each one may use the memory, and no other is to be woken for it.
  static int device() {
    if (auto used = c10::cuda::getDeviceIndexWithPrimaryContext()) return *used;
    c10::DeviceIndex index = 0;
    return c10::cuda::GetDevice(&index) == cudaSuccess ? index : 0;
  }

  static void release(void* address) {
    installed->forget(address);
    installed->core->pinned_release(address);
  }

  bool record_event(void* address, void* context, c10::Stream stream) {
    const c10::cuda::CUDAStream used(stream);
    if (core->pinned_record(address, used.device_index(), used.stream()) == 1) return true;
    return next->record_event(address, context, stream);
  }

  void empty_cache() {
    next->empty_cache();
    core->pinned_trim();
  }

  void copy_data(void* to, const void* from, size_t bytes) const { next->copy_data(to, from, bytes); }

  at::HostStats get_stats() {
    auto stats = next->get_stats();
    StallocPinned ours{};
    core->pinned_counters(&ours, 0, 0);
    add(stats, ours, 0);
    add(stats.host_alloc_time, ours.taking);
    add(stats.host_free_time, ours.giving_back);
    stats.num_host_alloc += int64_t(ours.regions.allocated);
    stats.num_host_free += int64_t(ours.regions.freed);
    return stats;
  }
  void reset_accumulated_stats() {
    next->reset_accumulated_stats();
    StallocPinned ours{};
    core->pinned_counters(&ours, 0, 1);
  }
  void reset_peak_stats() {
    next->reset_peak_stats();
    StallocPinned ours{};
    core->pinned_counters(&ours, 1, 0);
  }

  // What graphs use is PyTorch's.
  void begin_allocate_to_pool(MempoolId_t pool, std::function<bool(c10::Stream)> filter) {
    next->begin_allocate_to_pool(pool, std::move(filter));
  }
  void end_allocate_to_pool(MempoolId_t pool) { next->end_allocate_to_pool(pool); }
  void release_pool(MempoolId_t pool) { next->release_pool(pool); }
};

}  // namespace stalloc::pinned
