// PyTorch's memory snapshots, with the arena's share in them.
#pragma once
#include <utility>
#include <vector>

#include "core.h"
#include "history.h"

namespace stalloc {

using c10::cuda::CUDACachingAllocator::BlockInfo;
using c10::cuda::CUDACachingAllocator::SegmentInfo;

// Blocks up to this size count as small, bytes: PyTorch's border between its two pools.
constexpr uint64_t SMALL_BLOCK = 1 << 20;

// Adds the arena's segments of one device, with the stacks that its history knows. While no history is kept, small blocks have
// segments of their own: then the sums over segments of a kind are the statistics by pool. The entries of a history tell of
// whole ranges.
inline void append_arena(const StallocCore* core, int index, History& history, std::vector<SegmentInfo>& segments) {
  auto parts = all_of<StallocPart>([&](auto* out, size_t room) { return core->parts(index, out, room); });
  auto stacks = history.stacks();
  const bool is_solid = core->is_solid(index) == 1, by_pool = !is_solid && !History::any_enabled();
  for (const auto& part : parts) {
    const bool is_small = by_pool && part.state == 1 && part.size <= SMALL_BLOCK;
    if (part.begins == 1 || segments.back().is_large == is_small) {
      SegmentInfo segment;
      segment.device = c10::DeviceIndex(index);
      segment.address = part.address;
      segment.stream = static_cast<cudaStream_t>(part.stream);
      segment.is_large = !is_small;
      segment.is_expandable = !is_solid;
      segments.push_back(std::move(segment));
    }
    BlockInfo block;
    block.size = part.size;
    block.requested_size = part.requested;
    block.allocated = part.state == 1;
    block.active = part.state != 0;
    if (auto stack = stacks.find(part.address); block.active && stack != stacks.end()) block.context_when_allocated = stack->second;
    auto& segment = segments.back();
    segment.total_size += block.size;
    segment.requested_size += block.requested_size;
    if (block.active) segment.active_size += block.size;
    if (block.allocated) segment.allocated_size += block.size;
    segment.blocks.push_back(std::move(block));
  }
}

}  // namespace stalloc
