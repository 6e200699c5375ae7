// PyTorch's memory history and snapshots, with the arena's share in them.
#pragma once
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "devices.h"

namespace stalloc {

using c10::cuda::MempoolId_t;
using c10::cuda::CUDACachingAllocator::BlockInfo;
using c10::cuda::CUDACachingAllocator::SegmentInfo;

// Adds a block to the segment that it lies in, with the stack that the history knows of its address.
template <typename Stacks>
void append_block(SegmentInfo& segment, BlockInfo block, uint64_t address, const Stacks& stacks) {
  if (auto stack = stacks.find(address); block.active && stack != stacks.end()) block.context_when_allocated = stack->second;
  segment.total_size += block.size;
  segment.requested_size += block.requested_size;
  if (block.active) segment.active_size += block.size;
  if (block.allocated) segment.allocated_size += block.size;
  segment.blocks.push_back(std::move(block));
}

// Adds the arena's segments of one device, with the stacks that its history knows. A solid arena is one. Otherwise, while no
// history is kept, small blocks have segments of their own: the entries of a history tell of whole ranges.
inline void append_arena(const StallocCore* core, int index, History& history, std::vector<SegmentInfo>& segments) {
  const bool is_solid = core->is_solid(index) == 1;
  const int by_pool = History::any_enabled() || is_solid ? 0 : 1;
  auto parts = all_of<StallocPart>([&](auto* out, size_t room) { return core->parts(index, by_pool, out, room); });
  auto stacks = history.stacks();
  for (const auto& part : parts) {
    if (part.begins == 1) {
      SegmentInfo segment;
      segment.device = c10::DeviceIndex(index);
      segment.address = part.address;
      segment.stream = static_cast<cudaStream_t>(part.stream);
      segment.is_large = part.small == 0;
      segment.is_expandable = !is_solid;
      segments.push_back(std::move(segment));
    }
    BlockInfo block;
    block.size = part.size;
    block.requested_size = part.requested;
    block.allocated = part.state == 1;
    block.active = part.state != 0;
    append_block(segments.back(), std::move(block), part.address, stacks);
  }
}

// Blocks up to this size count as small, bytes: PyTorch's border between its two pools.
constexpr uint64_t SMALL_BLOCK = 1 << 20;

// Adds the segments of the pools of graphs of one device: of one of them, or of all for {0, 0}. What follows in addresses, in a
// pool and of one kind, is one segment.
inline void append_pools(const StallocCore* core, int index, MempoolId_t pool, History& history,
                         std::vector<SegmentInfo>& segments) {
  auto stacks = history.stacks();
  uint64_t end = 0;
  for (const auto& part : pool_parts(core, index)) {
    const MempoolId_t id{part.pool[0], part.pool[1]};
    if (pool != MempoolId_t{0, 0} && pool != id) continue;
    const bool is_large = part.free == 1 || part.block.size > SMALL_BLOCK;
    const bool follows = end == part.block.address && segments.back().owner_private_pool_id == id;
    end = part.block.address + part.block.size;
    if (!follows || segments.back().is_large != is_large) {
      SegmentInfo segment;
      segment.device = c10::DeviceIndex(index);
      segment.address = part.block.address;
      segment.stream = static_cast<cudaStream_t>(part.block.stream);
      segment.is_large = is_large;
      segment.is_expandable = true;
      segment.owner_private_pool_id = id;
      segments.push_back(std::move(segment));
    }
    BlockInfo block;
    block.size = part.block.size;
    block.requested_size = part.block.requested;
    block.allocated = part.free == 0 && part.block.pending == 0;
    block.active = part.free == 0;
    auto& blocks = segments.back().blocks;
    if (!blocks.empty() && !blocks.back().active && !block.active) {
      // What is free of several pages is one block.
      blocks.back().size += block.size;
      segments.back().total_size += block.size;
      continue;
    }
    append_block(segments.back(), std::move(block), part.block.address, stacks);
  }
}

struct Snapshots {
  const Devices& devices;
  // From now to a snapshot it sees how fast the processor's clock runs: one that is made then sees next to nothing.
  c10::ApproximateClockToUnixTimeConverter clock{};

  void remember(bool on, native::CreateContextFn recorder, size_t length, RecordContext level, bool clear = false,
                const std::vector<std::string>& skip = {}) {
    if (!on) History::enable(false);
    for (auto& device : devices.all) device->history.set(device->core, on, recorder, length, level, clear, skip);
    if (on) History::enable(true);
  }

  // The native allocator's snapshot of a pool, or of all for {0, 0}, with the arena's share.
  native::SnapshotInfo with_arena(native::SnapshotInfo result, MempoolId_t pool, bool traces) {
    for (auto& device : devices.all) {
      append_pools(device->core, device->index, pool, device->history, result.segments);
      if (!History::any_enabled()) continue;
      StallocCounters counters{};
      device->core->counters(device->index, &counters, 0, 0);
      device->history.snapshot_taken(counters.all.bytes.current);
    }
    if (pool != MempoolId_t{0, 0}) return result;
    auto to_unix = clock.makeConverter();
    for (auto& device : devices.all) {
      append_arena(device->core, device->index, device->history, result.segments);
      if (!traces || size_t(device->index) >= result.device_traces.size()) continue;
      device->history.complete_frees(device->core);
      device->history.merge_into(result.device_traces[device->index], to_unix);
    }
    return result;
  }

  // The stack of the block that begins at an address, if it was taken.
  std::shared_ptr<c10::GatheredContext> stack_of(const void* address, const StallocBlock& block) const {
    auto* device = block.address == uint64_t(address) ? devices.owner(address) : nullptr;
    return device != nullptr ? device->history.stack_of(block.address) : nullptr;
  }
};

// Those who are told of new segments: NCCL's communicators, which register them.
class Trackers {
 public:
  bool any() const { return is_any.load(std::memory_order_relaxed); }

  void attach(native::AllocatorTraceTracker tracker) {
    std::lock_guard<std::mutex> lock(mutex);
    all.push_back(std::move(tracker));
    is_any.store(true);
  }

  // To be called once the arena is there. A solid one is a segment; what is mapped by pages cannot be registered.
  C10_NOINLINE void tell(Device& device) {
    if (device.is_arena_told.exchange(true) || device.core->is_solid(device.index) != 1) return;
    std::vector<native::AllocatorTraceTracker> wanted;
    {
      std::lock_guard<std::mutex> lock(mutex);
      wanted = all;
    }
    StallocArena arena{};
    device.core->arena(device.index, &arena);
    const auto entry =
        make_entry<TraceEntry>(TraceEntry::SEGMENT_ALLOC, device.index, size_t(arena.address), size_t(arena.size), nullptr,
                               MempoolId_t{0, 0}, c10::getApproximateTime(), std::shared_ptr<c10::GatheredContext>());
    for (const auto& tracker : wanted) tracker(entry);
  }

 private:
  std::mutex mutex;
  std::vector<native::AllocatorTraceTracker> all;
  std::atomic<bool> is_any{false};
};

}  // namespace stalloc
