// PyTorch's memory history, with the arena's share in it.
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

using c10::cuda::CUDACachingAllocator::CreateContextFn;
using c10::cuda::CUDACachingAllocator::RecordContext;
using c10::cuda::CUDACachingAllocator::TraceEntry;

// What an interface of the core that fills a given room has to say, all of it.
template <typename Item, typename Fill>
std::vector<Item> all_of(Fill&& fill) {
  std::vector<Item> items;
  for (size_t count = fill(static_cast<Item*>(nullptr), size_t(0));;) {
    items.resize(count + 64);
    count = fill(items.data(), items.size());
    if (count > items.size()) continue;  // it grew meanwhile
    items.resize(count);
    return items;
  }
}

// What happened to the arena's blocks on one device, as far as PyTorch is asked to remember it.
//
// The core is asked with no lock held. What it says of its memory carries the number of changes until then, so that what a slower
// thread saw earlier is not noted after what a faster one saw later.
class History {
 public:
  explicit History(int device) : index(device) {}

  // Whether anything is to be remembered, on any device: one load.
  static bool any_enabled() { return enabled.load(std::memory_order_relaxed); }

  // To be called when all devices' histories know what they are to do, or before they forget it.
  static void enable(bool on) { enabled.store(on); }

  void set(const StallocCore* core, bool on, CreateContextFn recorder, size_t most, RecordContext level, bool clear,
           const std::vector<std::string>& skip) {
    Memory now = on ? memory(core) : Memory();
    std::lock_guard<std::mutex> lock(mutex);
    skipped = skip;
    context = level > RecordContext::NEVER ? recorder : nullptr;
    when = level;
    length = std::max<size_t>(most, 1);
    if (now.number > noted.load(std::memory_order_relaxed)) remember(std::move(now));
    if (!on) {
      leaving.clear();
      live.clear();
    }
    if (!on || clear) entries.clear();
  }

  // Notes what was mapped and what was given back since this was last asked: one load if nothing was.
  void memory_changed(const StallocCore* core, RecordContext least, const Notes& notes) {
    if (C10_LIKELY(core->memory_changes(index) == noted.load(std::memory_order_acquire))) return;
    Memory now = memory(core);
    const auto appears = core->is_solid(index) == 1 ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_MAP;
    Stack stack = gather(least);
    std::lock_guard<std::mutex> lock(mutex);
    if (now.number <= noted.load(std::memory_order_relaxed)) return;  // another thread has noted this, and perhaps more
    auto tell = [&](const std::vector<StallocRange>& here, const std::vector<StallocRange>& there, TraceEntry::Action action,
                    const char* name) {
      for (const auto& part : without(here, there)) add(action, name, part.address, part.size, nullptr, stack, notes);
    };
    tell(mapped, now.ranges, TraceEntry::SEGMENT_UNMAP, "segment_unmap");
    tell(now.ranges, mapped, appears, appears == TraceEntry::SEGMENT_MAP ? "segment_map" : "segment_alloc");
    remember(std::move(now));
  }

  // A block was handed out.
  void allocated(void* address, size_t size, size_t rounded, void* stream, Notes notes) {
    Stack stack = gather(RecordContext::STATE);
    std::lock_guard<std::mutex> lock(mutex);
    // What was there before has come to its end: nobody need be asked.
    const uint64_t start = uint64_t(address);
    complete([&](const Leaving& gone) {
      return gone.block.address < start + rounded && start < gone.block.address + gone.block.size;
    });
    if (stack != nullptr) live[start] = stack;
    add(TraceEntry::ALLOC, "alloc", start, size, stream, std::move(stack), std::move(notes));
  }

  // A block is about to be given back.
  void free_requested(const StallocBlock& block, Notes notes) {
    Stack stack = gather(RecordContext::ALL);
    std::lock_guard<std::mutex> lock(mutex);
    add(TraceEntry::FREE_REQUESTED, "free_requested", block.address, block.requested, block.stream, stack, notes);
    leaving.push_back({++departures, block, std::move(stack), std::move(notes)});
  }

  // The program says something of a live block. Older versions have no such entries.
  template <typename Entry = TraceEntry>
  void annotated(const StallocBlock& block, Notes notes) {
    Stack stack = gather(RecordContext::ALLOC);
    std::lock_guard<std::mutex> lock(mutex);
    add(Entry::ANNOTATE, "annotate", block.address, block.requested, block.stream, std::move(stack), std::move(notes));
  }

  // The stacks of live blocks by address, as far as they were taken.
  std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> stacks() {
    std::lock_guard<std::mutex> lock(mutex);
    return live;
  }

  // The stack of the live block at an address, if it was taken.
  std::shared_ptr<c10::GatheredContext> stack_of(uint64_t address) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = live.find(address);
    return found == live.end() ? nullptr : found->second;
  }

  // Adds the end of those blocks that no stream uses any more.
  void complete_frees(const StallocCore* core) {
    std::vector<std::pair<uint64_t, uint64_t>> asked;  // number and address, in the order of numbers
    {
      std::lock_guard<std::mutex> lock(mutex);
      for (const auto& gone : leaving) asked.emplace_back(gone.number, gone.block.address);
    }
    std::vector<uint64_t> ended;
    for (const auto& [number, address] : asked) {
      StallocBlock now{};
      // The address may be another block's already.
      if (!(core->find(reinterpret_cast<void*>(address), &now) && now.pending && now.address == address)) ended.push_back(number);
    }
    if (ended.empty()) return;
    std::lock_guard<std::mutex> lock(mutex);
    complete([&](const Leaving& gone) { return std::binary_search(ended.begin(), ended.end(), gone.number); });
  }

  // Adds the entries to the native allocator's, in the order of time.
  template <typename Clock>
  void merge_into(std::vector<TraceEntry>& trace, Clock& to_unix) {
    size_t middle = trace.size(), most = 0;
    {
      std::lock_guard<std::mutex> lock(mutex);
      trace.insert(trace.end(), entries.begin(), entries.end());
      most = length;
    }
    // Theirs are converted already.
    for (size_t i = middle; i < trace.size(); ++i) trace[i].time_.t_ = to_unix(trace[i].time_.approx_t_) / 1000;
    std::inplace_merge(trace.begin(), trace.begin() + ptrdiff_t(middle), trace.end(),
                       [](const TraceEntry& a, const TraceEntry& b) { return a.time_.t_ < b.time_.t_; });
    // Each of the two kept so many.
    if (trace.size() > most) trace.erase(trace.begin(), trace.end() - ptrdiff_t(most));
  }

 private:
  using Stack = std::shared_ptr<c10::GatheredContext>;

  // A block that was given back, or is about to be, and whose end is not among the entries yet.
  struct Leaving {
    uint64_t number;  // counts up
    StallocBlock block;
    Stack stack;
    Notes notes;
  };

  // The arena's memory after so many changes.
  struct Memory {
    uint64_t number = 0;
    std::vector<StallocRange> ranges;
  };

  inline static std::atomic<bool> enabled{false};
  int index;
  std::mutex mutex;
  std::deque<TraceEntry> entries;
  std::vector<Leaving> leaving;
  std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> live;  // where live blocks were asked for
  uint64_t departures = 0;
  std::vector<StallocRange> mapped;  // the arena's memory as last noted
  std::atomic<uint64_t> noted{0};    // its number of changes then; written with the lock held
  std::vector<std::string> skipped;  // kinds of entries that are not kept
  size_t length = 1;
  CreateContextFn context = nullptr;
  RecordContext when = RecordContext::NEVER;

  Memory memory(const StallocCore* core) const {
    Memory now;
    now.ranges = all_of<StallocRange>([&](auto* out, size_t room) { return core->memory(index, out, room, &now.number); });
    return now;
  }

  // The lock is held.
  void remember(Memory now) {
    mapped = std::move(now.ranges);
    noted.store(now.number, std::memory_order_release);
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
  void add(TraceEntry::Action action, const char* name, uint64_t address, size_t size, void* stream, Stack stack, Notes notes) {
    if (std::find(skipped.begin(), skipped.end(), name) != skipped.end()) return;
    if (when < RecordContext::ALLOC) stack = nullptr;
    entries.push_back(make_entry<TraceEntry>(action, c10::DeviceIndex(index), size_t(address), size,
                                             static_cast<cudaStream_t>(stream), c10::getApproximateTime(), std::move(stack)));
    note(entries.back(), notes, 0);
    while (entries.size() > length) entries.pop_front();
  }

  template <typename Ended>
  void complete(Ended&& has_ended) {
    std::vector<Leaving> waiting;
    for (auto& gone : leaving) {
      if (has_ended(gone)) {
        live.erase(gone.block.address);
        add(TraceEntry::FREE_COMPLETED, "free_completed", gone.block.address, gone.block.requested, gone.block.stream,
            std::move(gone.stack), std::move(gone.notes));
      } else {
        waiting.push_back(std::move(gone));
      }
    }
    leaving.swap(waiting);
  }
};

}  // namespace stalloc
