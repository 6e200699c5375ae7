// PyTorch's memory history and snapshots, with the arena's share in them.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "core.h"

namespace stalloc {

using c10::cuda::CUDACachingAllocator::BlockInfo;
using c10::cuda::CUDACachingAllocator::CreateContextFn;
using c10::cuda::CUDACachingAllocator::RecordContext;
using c10::cuda::CUDACachingAllocator::SegmentInfo;
using c10::cuda::CUDACachingAllocator::TraceEntry;

// An entry of the history, outside all private pools. Older versions' entries do not name their pool.
template <typename Entry, typename Time, typename Stack>
Entry make_entry(typename Entry::Action action, c10::DeviceIndex device, size_t address, size_t size, cudaStream_t stream, Time time,
                 Stack stack) {
  using Pool = c10::cuda::MempoolId_t;
  if constexpr (std::is_constructible_v<Entry, decltype(action), decltype(device), size_t, size_t, cudaStream_t, Pool, Time, Stack>)
    return Entry(action, device, address, size, stream, Pool{0, 0}, time, std::move(stack));
  else
    return Entry(action, device, address, size, stream, time, std::move(stack));
}

// What happened to the arena's blocks on one device, as far as PyTorch is asked to remember it.
class History {
 public:
  explicit History(int device) : index(device) {}

  // Whether anything is to be remembered, on any device: one load.
  static bool any_enabled() { return enabled.load(std::memory_order_relaxed); }

  void set(bool on, CreateContextFn recorder, size_t most, RecordContext level, bool clear) {
    std::lock_guard<std::mutex> lock(mutex);
    context = level > RecordContext::NEVER ? recorder : nullptr;
    when = level;
    length = std::max<size_t>(most, 1);
    enabled.store(on);
    if (!on || clear) entries.clear();
  }

  void add(TraceEntry::Action action, void* address, size_t size, void* stream) {
    auto least = action == TraceEntry::ALLOC ? RecordContext::ALLOC : RecordContext::ALL;
    CreateContextFn gather = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (when >= least) gather = context;
    }
    // The recorder may take the interpreter's lock: no lock of ours is held here.
    std::shared_ptr<c10::GatheredContext> stack = gather != nullptr ? gather() : nullptr;
    auto entry = make_entry<TraceEntry>(action, c10::DeviceIndex(index), size_t(address), size, static_cast<cudaStream_t>(stream),
                                        c10::getApproximateTime(), std::move(stack));
    std::lock_guard<std::mutex> lock(mutex);
    entries.push_back(std::move(entry));
    while (entries.size() > length) entries.pop_front();
  }

  // Adds the entries to the native allocator's, in the order of time.
  template <typename Clock>
  void merge_into(std::vector<TraceEntry>& trace, Clock& to_unix) {
    size_t middle = trace.size();
    {
      std::lock_guard<std::mutex> lock(mutex);
      trace.insert(trace.end(), entries.begin(), entries.end());
    }
    // Theirs are converted already.
    for (size_t i = middle; i < trace.size(); ++i) trace[i].time_.t_ = to_unix(trace[i].time_.approx_t_) / 1000;
    std::inplace_merge(trace.begin(), trace.begin() + ptrdiff_t(middle), trace.end(),
                       [](const TraceEntry& a, const TraceEntry& b) { return a.time_.t_ < b.time_.t_; });
  }

 private:
  inline static std::atomic<bool> enabled{false};
  int index;
  std::mutex mutex;
  std::deque<TraceEntry> entries;
  size_t length = 1;
  CreateContextFn context = nullptr;
  RecordContext when = RecordContext::NEVER;
};

// The arena as one expandable segment: live blocks, and what lies between them.
inline void append_arena(const StallocCore* core, int index, std::vector<SegmentInfo>& segments) {
  StallocArena arena{};
  core->arena(index, &arena);
  if (arena.reserved == 0) return;
  std::vector<StallocBlock> blocks(core->blocks(index, nullptr, 0) + 64);
  blocks.resize(std::min(blocks.size(), core->blocks(index, blocks.data(), blocks.size())));
  SegmentInfo segment;
  segment.device = c10::DeviceIndex(index);
  segment.address = arena.address;
  segment.is_large = true;
  segment.is_expandable = true;
  uint64_t end = arena.address;
  auto push = [&](uint64_t size, uint64_t requested, bool allocated, bool active) {
    if (size == 0) return;
    BlockInfo info;
    info.size = size;
    info.requested_size = requested;
    info.allocated = allocated;
    info.active = active;
    segment.blocks.push_back(std::move(info));
    end += size;
  };
  for (const auto& block : blocks) {
    if (block.address < end) continue;
    push(block.address - end, 0, false, false);
    push(block.size, block.requested, block.pending == 0, true);
    segment.active_size += block.size;
    if (block.pending == 0) segment.allocated_size += block.size;
    segment.requested_size += block.requested;
    if (segment.stream == nullptr) segment.stream = static_cast<cudaStream_t>(block.stream);
  }
  uint64_t top = std::max(arena.address + arena.size, end);
  push(top - end, 0, false, false);
  segment.total_size = top - arena.address;
  segments.push_back(std::move(segment));
}

}  // namespace stalloc
