// PyTorch's memory history, with the arena's share in it.
#pragma once
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <map>
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

// The parts of the pools of graphs on a device.
inline std::vector<StallocPoolPart> pool_parts(const StallocCore* core, int index) {
  return all_of<StallocPoolPart>([&](auto* out, size_t room) { return core->pool_parts(index, out, room); });
}

using PoolId = c10::cuda::MempoolId_t;

using Time = decltype(c10::getApproximateTime());

using Stack = std::shared_ptr<c10::GatheredContext>;

// What is kept of an entry until PyTorch asks for it: half of what PyTorch's own takes, and no strings.
struct Entry {
  TraceEntry::Action action;
  bool completes;  // a free that no stream had to do with any more: its end, too
  uint64_t address;
  size_t size;
  void* stream;
  PoolId pool;
  Time time;
  Stack stack;
  Notes notes;
};

// The last entries, as many as are to be kept.
class LastEntries {
 public:
  void clear() {
    all.clear();
    first = 0;
  }
  void keep(size_t count) {
    std::rotate(all.begin(), all.begin() + ptrdiff_t(first), all.end());
    if (all.size() > count) all.erase(all.begin(), all.end() - ptrdiff_t(count));
    first = 0;
    most = count;
  }
  void add(Entry entry) {
    if (all.size() < most) {
      all.push_back(std::move(entry));
    } else {
      all[first] = std::move(entry);
      first = first + 1 < most ? first + 1 : 0;
    }
  }
  void append_to(std::vector<TraceEntry>& to, int device) const {
    for (size_t i = 0; i < all.size(); ++i) {
      const Entry& entry = all[(first + i) % all.size()];
      auto append = [&](TraceEntry::Action action) {
        to.push_back(make_entry<TraceEntry>(action, c10::DeviceIndex(device), size_t(entry.address), entry.size,
                                            static_cast<cudaStream_t>(entry.stream), entry.pool, entry.time, entry.stack));
        note(to.back(), entry.notes, 0);
      };
      append(entry.action);
      if (entry.completes) append(TraceEntry::FREE_COMPLETED);
    }
  }

 private:
  std::vector<Entry> all;
  size_t first = 0;  // the oldest, once there are as many as are kept
  size_t most = 1;
};

// What happened to the arena's blocks on one device, as far as PyTorch is asked to remember it. No call costs more with more
// blocks alive, but for a snapshot and for memory that changes.
//
// What the core says of its memory carries the number of changes until then, so that what a slower thread saw earlier is not
// noted after what a faster one saw later.
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
    const auto of_pools = on ? pool_parts(core, index) : std::vector<StallocPoolPart>();
    std::lock_guard<std::mutex> lock(mutex);
    skipped = skip;
    context = level > RecordContext::NEVER ? recorder : nullptr;
    when = level;
    length = std::max<size_t>(most, 1);
    entries.keep(length);
    if (now.number > noted.load(std::memory_order_relaxed)) remember(std::move(now));
    leaving_in_order.clear();
    if (!on) {
      leaving.clear();
      live.clear();
    }
    for (const auto& [address, gone] : leaving) leaving_in_order.emplace_back(gone.number, address);
    std::sort(leaving_in_order.begin(), leaving_in_order.end());
    pools.clear();
    for (const auto& part : of_pools)
      if (part.free == 0) pools[part.block.address] = {part.pool[0], part.pool[1]};
    if (!on || clear) entries.clear();
  }

  // Notes what was mapped, for a stream, and what was given back since this was last asked: one load if nothing was.
  template <typename MakeNotes>
  void memory_changed(const StallocCore* core, RecordContext least, MakeNotes&& make_notes, void* stream = nullptr) {
    if (C10_LIKELY(core->memory_changes(index) == noted.load(std::memory_order_acquire))) return;
    const Notes notes = make_notes();
    Memory now = memory(core);
    const auto appears = core->is_solid(index) == 1 ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_MAP;
    Stack stack = gather(least);
    std::lock_guard<std::mutex> lock(mutex);
    if (now.number <= noted.load(std::memory_order_relaxed)) return;  // another thread has noted this, and perhaps more
    auto tell = [&](const std::vector<StallocRange>& here, const std::vector<StallocRange>& there, TraceEntry::Action action,
                    const char* name) {
      auto* of = action == appears ? stream : nullptr;
      for (const auto& part : without(here, there)) add(action, name, part.address, part.size, of, {0, 0}, stack, notes);
    };
    tell(known.ranges, now.ranges, TraceEntry::SEGMENT_UNMAP, "segment_unmap");
    tell(now.ranges, known.ranges, appears, appears == TraceEntry::SEGMENT_MAP ? "segment_map" : "segment_alloc");
    // A pool's memory has many addresses: what counts is how much there is.
    for (const auto& [pool, held] : now.pools) {
      const auto before = known.pools.find(pool);
      const uint64_t bytes = before == known.pools.end() ? 0 : before->second.size;
      if (held.size > bytes)
        add(TraceEntry::SEGMENT_MAP, "segment_map", held.address, held.size - bytes, stream, pool, stack, notes);
    }
    for (const auto& [pool, held] : known.pools) {
      const auto after = now.pools.find(pool);
      const uint64_t bytes = after == now.pools.end() ? 0 : after->second.size;
      if (held.size > bytes)
        add(TraceEntry::SEGMENT_UNMAP, "segment_unmap", held.address, held.size - bytes, nullptr, pool, stack, notes);
    }
    remember(std::move(now));
  }

  // Adds the ends of blocks that streams have done with, as the native allocator does at each request.
  void complete_done(const StallocCore* core) {
    std::unique_lock<std::mutex> lock(mutex);
    if (!leaving_in_order.empty()) complete_first(core, lock);
  }

  // A block was handed out, from a pool if it is not {0, 0}.
  void allocated(void* address, size_t size, size_t rounded, void* stream, PoolId pool, Notes notes) {
    Stack stack = gather(RecordContext::STATE);
    std::lock_guard<std::mutex> lock(mutex);
    const uint64_t start = uint64_t(address);
    // What was there before has come to its end: nobody need be asked.
    auto gone = leaving.upper_bound(start);
    if (gone != leaving.begin() && std::prev(gone)->second.end() > start) --gone;
    while (gone != leaving.end() && gone->first < start + rounded) gone = complete(gone);
    if (stack != nullptr) live[start] = stack;
    if (pool != PoolId{0, 0}) pools[start] = pool;
    add(TraceEntry::ALLOC, "alloc", start, size, stream, pool, std::move(stack), std::move(notes));
  }

  // Takes a block of the arena back; its rounded bytes, or 0 if the address is none. The lock is held meanwhile, so that a thread
  // that gets the address notes it later: nothing that the core does here waits for this lock, or for the interpreter's.
  size_t release(const StallocCore* core, void* address, Notes notes) {
    Stack stack = gather(RecordContext::ALL);
    std::unique_lock<std::mutex> lock(mutex);
    StallocBlock block{};
    const size_t rounded = core->release(address, nullptr, &block);
    if (rounded == 0) return 0;
    if (C10_LIKELY(block.pending == 0)) {
      freed(block, std::move(stack), std::move(notes));
    } else {
      const auto gone = leave(block, std::move(stack), std::move(notes));
      leaving_in_order.emplace_back(gone->second.number, gone->first);
    }
    if (C10_UNLIKELY(!leaving_in_order.empty())) complete_first(core, lock);
    return rounded;
  }

  // A block of a graph's pool is about to be given back.
  void free_requested(const StallocBlock& block, Notes notes) {
    Stack stack = gather(RecordContext::ALL);
    std::lock_guard<std::mutex> lock(mutex);
    leave(block, std::move(stack), std::move(notes));
  }

  // The program says something of a live block. Older versions have no such entries.
  template <typename Entry = TraceEntry>
  void annotated(const StallocBlock& block, Notes notes) {
    Stack stack = gather(RecordContext::ALLOC);
    std::lock_guard<std::mutex> lock(mutex);
    add(Entry::ANNOTATE, "annotate", block.address, block.requested, block.stream, pool_of(block.address), std::move(stack),
        std::move(notes));
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

  // Adds the end of those blocks that no stream uses any more: for a snapshot, which needs them all.
  void complete_frees(const StallocCore* core) {
    std::vector<std::pair<uint64_t, uint64_t>> asked;  // address and number
    {
      std::lock_guard<std::mutex> lock(mutex);
      for (const auto& [address, gone] : leaving) asked.emplace_back(address, gone.number);
    }
    const auto waits = [&](const auto& one) { return is_pending(core, one.first); };
    asked.erase(std::remove_if(asked.begin(), asked.end(), waits), asked.end());
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [address, number] : asked)
      if (const auto gone = leaving.find(address); gone != leaving.end() && gone->second.number == number) complete(gone);
  }

  // Between two times the native allocator noted a failure that the program never hears of: the request was made again.
  void leave_out(Time from, Time to) {
    std::lock_guard<std::mutex> lock(mutex);
    unheard.emplace_back(from, to);
    if (unheard.size() > length) unheard.pop_front();
  }

  // The native allocator has just noted a snapshot, with the bytes that are in use; the arena has so many more.
  void snapshot_taken(uint64_t arena_bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    snapshots.emplace_back(c10::getApproximateTime(), arena_bytes);
    if (snapshots.size() > length) snapshots.pop_front();
  }

  // Adds the entries to the native allocator's, in the order of time.
  template <typename Clock>
  void merge_into(std::vector<TraceEntry>& trace, Clock& to_unix) {
    size_t middle = 0, most = 0;
    {
      std::lock_guard<std::mutex> lock(mutex);
      const auto is_unheard = [&](const TraceEntry& entry) {
        return entry.action_ == TraceEntry::OOM && std::any_of(unheard.begin(), unheard.end(), [&](const auto& failure) {
                 return to_unix(failure.first) / 1000 <= entry.time_.t_ && entry.time_.t_ <= to_unix(failure.second) / 1000;
               });
      };
      for (auto& entry : trace) {
        if (entry.action_ != TraceEntry::SNAPSHOT || snapshots.empty()) continue;
        const auto apart = [&](const auto& one) { return std::abs(to_unix(one.first) / 1000 - entry.time_.t_); };
        const auto is_nearer = [&](const auto& a, const auto& b) { return apart(a) < apart(b); };
        entry.size_ += std::min_element(snapshots.begin(), snapshots.end(), is_nearer)->second;
      }
      trace.erase(std::remove_if(trace.begin(), trace.end(), is_unheard), trace.end());
      middle = trace.size();
      entries.append_to(trace, index);
      most = length;
    }
    // Theirs are converted already.
    for (size_t i = middle; i < trace.size(); ++i) trace[i].time_.t_ = to_unix(trace[i].time_.approx_t_) / 1000;
    std::inplace_merge(trace.begin(), trace.begin() + ptrdiff_t(middle), trace.end(),
                       [](const TraceEntry& a, const TraceEntry& b) { return a.time_.t_ < b.time_.t_; });
    // Each of the two kept so many, and frees in one with their ends.
    if (trace.size() > most) trace.erase(trace.begin(), trace.end() - ptrdiff_t(most));
  }

 private:
  // A block that was given back, or is about to be, and whose end is not among the entries yet.
  struct Leaving {
    uint64_t number;  // counts up
    StallocBlock block;
    Stack stack;
    Notes notes;
    uint64_t end() const { return block.address + block.size; }
  };
  using LeavingBlocks = std::map<uint64_t, Leaving>;

  // The arena's memory after so many changes, and that of pools: how much each holds, and its lowest address.
  struct Memory {
    uint64_t number = 0;
    std::vector<StallocRange> ranges;
    std::map<PoolId, StallocRange> pools;
  };

  inline static std::atomic<bool> enabled{false};
  int index;
  std::mutex mutex;
  LastEntries entries;
  std::deque<std::pair<Time, Time>> unheard;                   // when failures were that are left out
  std::deque<std::pair<Time, uint64_t>> snapshots;             // when they were taken, and the arena's bytes in use
  LeavingBlocks leaving;                                       // by address
  std::deque<std::pair<uint64_t, uint64_t>> leaving_in_order;  // number and address of those that streams have not done with
  std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> live;  // where live blocks were asked for
  std::unordered_map<uint64_t, PoolId> pools;                                // of blocks that lie in one
  uint64_t departures = 0;
  Memory known;                      // as last noted
  std::atomic<uint64_t> noted{0};    // its number of changes; written with the lock held
  std::vector<std::string> skipped;  // kinds of entries that are not kept
  size_t length = 1;
  std::atomic<CreateContextFn> context{nullptr};
  std::atomic<RecordContext> when{RecordContext::NEVER};

  Memory memory(const StallocCore* core) const {
    Memory now;
    now.ranges = all_of<StallocRange>([&](auto* out, size_t room) { return core->memory(index, out, room, &now.number); });
    for (const auto& part : pool_parts(core, index)) {
      auto& held = now.pools.try_emplace({part.pool[0], part.pool[1]}, StallocRange{part.block.address, 0}).first->second;
      held.address = std::min(held.address, part.block.address);
      held.size += part.block.size;
    }
    return now;
  }

  // The lock is held.
  void remember(Memory now) {
    const uint64_t number = now.number;
    known = std::move(now);
    noted.store(number, std::memory_order_release);
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
    const CreateContextFn recorder = context.load(std::memory_order_relaxed);
    return recorder != nullptr && when.load(std::memory_order_relaxed) >= least ? recorder() : nullptr;
  }

  // The lock is held from here on: entries are in the order of time.
  void add(TraceEntry::Action action, const char* name, uint64_t address, size_t size, void* stream, PoolId pool, Stack stack,
           Notes notes, bool completes = false) {
    if (C10_UNLIKELY(std::find(skipped.begin(), skipped.end(), name) != skipped.end())) return;
    if (when.load(std::memory_order_relaxed) < RecordContext::ALLOC) stack = nullptr;
    entries.add({action, completes, address, size, stream, pool, c10::getApproximateTime(), std::move(stack), std::move(notes)});
  }

  PoolId pool_of(uint64_t address) const {
    const auto found = pools.empty() ? pools.end() : pools.find(address);
    return found == pools.end() ? PoolId{0, 0} : found->second;
  }

  LeavingBlocks::iterator leave(const StallocBlock& block, Stack stack, Notes notes) {
    requested(block, stack, notes);
    return leaving.insert_or_assign(block.address, Leaving{++departures, block, std::move(stack), std::move(notes)}).first;
  }

  // Adds a block's end; the next one in the order of addresses.
  LeavingBlocks::iterator complete(LeavingBlocks::iterator gone) {
    auto& left = gone->second;
    completed(left.block, std::move(left.stack), std::move(left.notes));
    return leaving.erase(gone);
  }

  void requested(const StallocBlock& block, const Stack& stack, const Notes& notes) {
    const auto pool = pool_of(block.address);
    add(TraceEntry::FREE_REQUESTED, "free_requested", block.address, block.requested, block.stream, pool, stack, notes);
  }

  // Both at once: one entry, unless one of them may not be kept.
  void freed(const StallocBlock& block, Stack stack, Notes notes) {
    if (C10_UNLIKELY(!skipped.empty())) {
      requested(block, stack, notes);
      return completed(block, std::move(stack), std::move(notes));
    }
    add(TraceEntry::FREE_REQUESTED, "free_requested", block.address, block.requested, block.stream, forget(block.address),
        std::move(stack), std::move(notes), true);
  }

  // No block is alive at an address any more; the pool that it lay in.
  PoolId forget(uint64_t address) {
    if (!live.empty()) live.erase(address);
    const auto pool = pool_of(address);
    if (pool != PoolId{0, 0}) pools.erase(address);
    return pool;
  }

  void completed(const StallocBlock& block, Stack stack, Notes notes) {
    const auto pool = forget(block.address);
    add(TraceEntry::FREE_COMPLETED, "free_completed", block.address, block.requested, block.stream, pool, std::move(stack),
        std::move(notes));
  }

  // Whether a block that was given back at an address waits there for other streams.
  static bool is_pending(const StallocCore* core, uint64_t address) {
    StallocBlock now{};
    // The address may be another block's already.
    return core->find(reinterpret_cast<void*>(address), &now) == 1 && now.pending == 1 && now.address == address;
  }

  // Adds the ends of those that have waited longest, up to the first that waits still. The lock is let go of while the core is
  // asked.
  void complete_first(const StallocCore* core, std::unique_lock<std::mutex>& lock) {
    while (!leaving_in_order.empty()) {
      const auto [number, address] = leaving_in_order.front();
      const auto is_it = [this](uint64_t wanted, uint64_t at) {
        const auto gone = leaving.find(at);
        return gone != leaving.end() && gone->second.number == wanted ? gone : leaving.end();
      };
      if (is_it(number, address) != leaving.end()) {
        lock.unlock();
        const bool waits = is_pending(core, address);
        lock.lock();
        if (waits) return;
        if (const auto gone = is_it(number, address); gone != leaving.end()) complete(gone);
      }
      if (!leaving_in_order.empty() && leaving_in_order.front().first == number) leaving_in_order.pop_front();
    }
  }
};

}  // namespace stalloc
