// PyTorch's memory history and snapshots, with the arena's share in them.
#pragma once
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core.h"
#include "versions.h"

namespace stalloc {

using c10::cuda::CUDACachingAllocator::BlockInfo;
using c10::cuda::CUDACachingAllocator::CreateContextFn;
using c10::cuda::CUDACachingAllocator::RecordContext;
using c10::cuda::CUDACachingAllocator::SegmentInfo;
using c10::cuda::CUDACachingAllocator::TraceEntry;

// What an interface of the core that fills a given room has to say, all of it.
template <typename Item, typename Fill>
std::vector<Item> all_of(Fill&& fill) {
  std::vector<Item> items(fill(static_cast<Item*>(nullptr), size_t(0)) + 64);
  items.resize(std::min(items.size(), fill(items.data(), items.size())));
  return items;
}

// What happened to the arena's blocks on one device, as far as PyTorch is asked to remember it.
class History {
 public:
  explicit History(int device) : index(device) {}

  // Whether anything is to be remembered, on any device: one load.
  static bool any_enabled() { return enabled.load(std::memory_order_relaxed); }

  void set(const StallocCore* core, bool on, CreateContextFn recorder, size_t most, RecordContext level, bool clear,
           const std::vector<std::string>& skip) {
    std::lock_guard<std::mutex> lock(mutex);
    skipped = skip;
    context = level > RecordContext::NEVER ? recorder : nullptr;
    when = level;
    length = std::max<size_t>(most, 1);
    if (on) mapped = all_of<StallocRange>([&](auto* out, size_t room) { return core->mapped(index, out, room); });
    enabled.store(on);
    if (!on) leaving.clear();
    if (!on || clear) entries.clear();
  }

  // The arena's memory may be another than when this was last asked: notes what was mapped and what was given back.
  void memory_changed(const StallocCore* core, RecordContext least, const Notes& notes) {
    auto now = all_of<StallocRange>([&](auto* out, size_t room) { return core->mapped(index, out, room); });
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (same(now, mapped)) return;
    }
    Stack stack = gather(least);
    std::lock_guard<std::mutex> lock(mutex);
    auto tell = [&](const std::vector<StallocRange>& here, const std::vector<StallocRange>& there, TraceEntry::Action action,
                    const char* name) {
      for (const auto& part : without(here, there)) add(action, name, part.address, part.size, nullptr, stack, notes);
    };
    tell(mapped, now, TraceEntry::SEGMENT_UNMAP, "segment_unmap");
    if (core->is_solid(index) == 1) {
      tell(now, mapped, TraceEntry::SEGMENT_ALLOC, "segment_alloc");
    } else {
      tell(now, mapped, TraceEntry::SEGMENT_MAP, "segment_map");
    }
    mapped = std::move(now);
  }

  // A block was handed out.
  void allocated(const StallocCore* core, void* address, size_t size, void* stream, Notes notes) {
    Stack stack = gather(RecordContext::ALLOC);
    std::lock_guard<std::mutex> lock(mutex);
    complete(core);
    add(TraceEntry::ALLOC, "alloc", uint64_t(address), size, stream, std::move(stack), std::move(notes));
  }

  // A block is about to be given back.
  void free_requested(const StallocBlock& block, Notes notes) {
    Stack stack = gather(RecordContext::ALL);
    std::lock_guard<std::mutex> lock(mutex);
    add(TraceEntry::FREE_REQUESTED, "free_requested", block.address, block.requested, block.stream, stack, notes);
    leaving.push_back({block, std::move(stack), std::move(notes)});
  }

  // The program says something of a live block. Older versions have no such entries.
  template <typename Entry = TraceEntry>
  void annotated(const StallocBlock& block, Notes notes) {
    Stack stack = gather(RecordContext::ALLOC);
    std::lock_guard<std::mutex> lock(mutex);
    add(Entry::ANNOTATE, "annotate", block.address, block.requested, block.stream, std::move(stack), std::move(notes));
  }

  // The stacks of the last allocations at all addresses, as far as they are remembered.
  std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> stacks() {
    std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> found;
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& entry : entries)
      if (entry.action_ == TraceEntry::ALLOC) found[entry.addr_] = entry.context_;
    return found;
  }

  // Adds the end of those blocks that no stream uses any more.
  void complete_frees(const StallocCore* core) {
    std::lock_guard<std::mutex> lock(mutex);
    complete(core);
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
  using Stack = std::shared_ptr<c10::GatheredContext>;

  // A block that was given back, or is about to be, and whose end is not among the entries yet.
  struct Leaving {
    StallocBlock block;
    Stack stack;
    Notes notes;
  };

  inline static std::atomic<bool> enabled{false};
  int index;
  std::mutex mutex;
  std::deque<TraceEntry> entries;
  std::vector<Leaving> leaving;
  std::vector<StallocRange> mapped;  // the arena's memory as last noted
  std::vector<std::string> skipped;  // kinds of entries that are not kept
  size_t length = 1;
  CreateContextFn context = nullptr;
  RecordContext when = RecordContext::NEVER;

  static bool same(const std::vector<StallocRange>& a, const std::vector<StallocRange>& b) {
    auto equal = [](const StallocRange& x, const StallocRange& y) { return x.address == y.address && x.size == y.size; };
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
  }

  // The parts of some ranges that lie in none of others; both are in the order of addresses.
  static std::vector<StallocRange> without(const std::vector<StallocRange>& here, const std::vector<StallocRange>& there) {
    std::vector<StallocRange> left;
    auto other = there.begin();
    for (const auto& range : here) {
      uint64_t at = range.address;
      const uint64_t end = range.address + range.size;
      while (other != there.end() && other->address + other->size <= at) ++other;
      for (auto next = other; next != there.end() && next->address < end; ++next) {
        if (next->address > at) left.push_back({at, next->address - at});
        at = std::max(at, next->address + next->size);
      }
      if (at < end) left.push_back({at, end - at});
    }
    return left;
  }

  // The call stack, if it is wanted. The recorder may take the interpreter's lock: no lock of ours is held meanwhile.
  Stack gather(RecordContext least) {
    CreateContextFn recorder = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (when >= least) recorder = context;
    }
    return recorder != nullptr ? recorder() : nullptr;
  }

  // The lock is held, as it is in `complete`: entries are in the order of time.
  void add(TraceEntry::Action action, const char* name, uint64_t address, size_t size, void* stream, Stack stack,
           Notes notes) {
    if (std::find(skipped.begin(), skipped.end(), name) != skipped.end()) return;
    entries.push_back(make_entry<TraceEntry>(action, c10::DeviceIndex(index), size_t(address), size,
                                             static_cast<cudaStream_t>(stream), c10::getApproximateTime(), std::move(stack)));
    note(entries.back(), notes, 0);
    while (entries.size() > length) entries.pop_front();
  }

  void complete(const StallocCore* core) {
    std::vector<Leaving> waiting;
    for (auto& gone : leaving) {
      StallocBlock now{};
      void* address = reinterpret_cast<void*>(gone.block.address);
      // The address may be another block's already.
      if (core->find(address, &now) && now.pending && now.address == gone.block.address)
        waiting.push_back(std::move(gone));
      else
        add(TraceEntry::FREE_COMPLETED, "free_completed", gone.block.address, gone.block.requested, gone.block.stream,
            std::move(gone.stack), std::move(gone.notes));
    }
    leaving.swap(waiting);
  }
};

// The arena's memory as segments, expandable unless it is one allocation, one for each part of its range that is mapped: live
// blocks, and what lies between them.
inline void append_arena(const StallocCore* core, int index, History& history, std::vector<SegmentInfo>& segments) {
  auto blocks = all_of<StallocBlock>([&](auto* out, size_t room) { return core->blocks(index, out, room); });
  auto mapped = all_of<StallocRange>([&](auto* out, size_t room) { return core->mapped(index, out, room); });
  auto stacks = history.stacks();
  const bool is_solid = core->is_solid(index) == 1;
  auto block = blocks.begin();
  for (const auto& range : mapped) {
    SegmentInfo segment;
    segment.device = c10::DeviceIndex(index);
    segment.address = range.address;
    segment.total_size = range.size;
    segment.is_large = true;
    segment.is_expandable = !is_solid;
    uint64_t at = range.address;
    const uint64_t end = range.address + range.size;
    auto push = [&](uint64_t size, uint64_t requested, bool allocated, bool active) {
      if (size == 0) return;
      BlockInfo info;
      info.size = size;
      info.requested_size = requested;
      info.allocated = allocated;
      info.active = active;
      if (auto stack = stacks.find(at); active && stack != stacks.end()) info.context_when_allocated = stack->second;
      segment.blocks.push_back(std::move(info));
      at += size;
    };
    // Blocks were looked at before the memory: one that has none any more is gone.
    for (; block != blocks.end() && block->address < end; ++block) {
      if (block->address < at || block->address + block->size > end) continue;
      push(block->address - at, 0, false, false);
      push(block->size, block->requested, block->pending == 0, true);
      segment.active_size += block->size;
      if (block->pending == 0) segment.allocated_size += block->size;
      segment.requested_size += block->requested;
      if (segment.stream == nullptr) segment.stream = static_cast<cudaStream_t>(block->stream);
    }
    push(end - at, 0, false, false);
    segments.push_back(std::move(segment));
  }
}

}  // namespace stalloc
