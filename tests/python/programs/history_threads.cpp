// The shim's history with a core that we play: what it notes when threads come in a bad order, and what it asks.
#include <chrono>
#include <future>
#include <sstream>
#include <thread>

#include "../../../python/stalloc/shim/history.h"

namespace {

using stalloc::History;
using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
using Context = c10::cuda::CUDACachingAllocator::RecordContext;

constexpr uint64_t kMiB = 1 << 20;

// The core's memory, how often it was asked for it, and what happens the next time before it answers.
struct World {
  std::vector<StallocRange> mapped;
  uint64_t changes = 0;
  int asked = 0;
  bool pending = true;
  std::function<void()> meanwhile;
  std::vector<std::string> problems;
} world;
History* history = nullptr;

// Another thread gets on while the core is asked.
void see_that_no_lock_is_held(const char* where) {
  std::packaged_task<void()> look([] { history->stacks(); });
  auto done = look.get_future();
  std::thread other(std::move(look));
  if (done.wait_for(std::chrono::seconds(20)) == std::future_status::ready) {
    other.join();
  } else {
    other.detach();
    world.problems.push_back(std::string("the history's lock is held while the core is asked: ") + where);
  }
}

size_t memory(int, StallocRange* out, size_t capacity, uint64_t* changes) {
  ++world.asked;
  auto seen = world.mapped;
  *changes = world.changes;
  if (capacity > 0 && world.meanwhile) std::exchange(world.meanwhile, nullptr)();
  for (size_t i = 0; i < std::min(capacity, seen.size()); ++i) out[i] = seen[i];
  see_that_no_lock_is_held("memory");
  return seen.size();
}

uint64_t memory_changes(int) { return world.changes; }

int is_solid(int) {
  see_that_no_lock_is_held("is_solid");
  return 0;
}

int find(const void* address, StallocBlock* block) {
  see_that_no_lock_is_held("find");
  *block = {uint64_t(address), kMiB, kMiB, nullptr, world.pending ? 1u : 0u};
  return 1;
}

// A block is given back, and at once another thread gets its address.
std::thread next_one;
size_t release(void* address, int*, StallocBlock* block) {
  *block = {uint64_t(address), kMiB, kMiB, nullptr, world.pending ? 1u : 0u};
  next_one = std::thread([address] { history->allocated(address, 2 * kMiB, kMiB, nullptr, {0, 0}, {}); });
  return kMiB;
}

size_t pool_parts(int, StallocPoolPart* out, size_t capacity) {
  if (capacity > 0) out[0] = {{7, 0}, {9 * kMiB, kMiB, kMiB, nullptr, 0}, 0};
  return 1;
}

void map(std::vector<StallocRange> ranges) {
  world.mapped = std::move(ranges);
  ++world.changes;
}

std::string entries() {
  std::vector<Entry> trace;
  auto same = [](auto time) { return int64_t(time); };
  history->merge_into(trace, same);
  std::ostringstream out;
  for (const auto& entry : trace) {
    switch (entry.action_) {
      case Entry::SEGMENT_MAP: out << "map "; break;
      case Entry::SEGMENT_UNMAP: out << "unmap "; break;
      case Entry::ALLOC: out << "alloc "; break;
      case Entry::FREE_REQUESTED: out << "requested "; break;
      case Entry::FREE_COMPLETED: out << "completed "; break;
      default: out << "other ";
    }
    out << entry.addr_ / kMiB << "+" << entry.size_ / kMiB << "; ";
  }
  return out.str();
}

void expect(const char* what, const std::string& seen, const std::string& wanted) {
  if (seen != wanted) world.problems.push_back(std::string(what) + ": " + seen + " and not " + wanted);
}

}  // namespace

// What went wrong, a line each.
extern "C" const char* history_problems() {
  StallocCore core{};
  core.memory = memory;
  core.memory_changes = memory_changes;
  core.is_solid = is_solid;
  core.find = find;
  core.release = release;
  core.pool_parts = pool_parts;
  static History kept(0);
  history = &kept;
  auto changed = [&] { history->memory_changed(&core, Context::NEVER, [] { return stalloc::Notes(); }); };

  map({{0, 2 * kMiB}});
  history->set(&core, true, nullptr, 1000, Context::NEVER, false, {});
  changed();
  expect("what was mapped before is not noted", entries(), "");
  world.asked = 0;
  for (int i = 0; i < 1000; ++i) changed();
  expect("unchanged memory is asked for", std::to_string(world.asked), "0");

  // While a thread is told of memory, another one's changes, and that one notes it first.
  map({{0, 4 * kMiB}});
  world.meanwhile = [&] {
    map({{0, 2 * kMiB}, {6 * kMiB, 2 * kMiB}});
    std::thread(changed).join();
  };
  changed();
  expect("an older state is noted after a newer one", entries(), "map 6+2; ");

  // A block that another stream uses ends when its address comes again, and nobody is asked then.
  history->free_requested({kMiB, kMiB, kMiB, nullptr, 0}, {});
  history->complete_frees(&core);
  expect("a block ends before its stream is done", entries(), "map 6+2; requested 1+1; ");
  history->allocated(reinterpret_cast<void*>(kMiB), kMiB, kMiB, nullptr, {0, 0}, {});
  expect("an address comes again before its block has ended", entries(), "map 6+2; requested 1+1; completed 1+1; alloc 1+1; ");
  history->free_requested({kMiB, kMiB, kMiB, nullptr, 0}, {});
  world.pending = false;
  history->complete_frees(&core);
  expect("a block ends", entries(), "map 6+2; requested 1+1; completed 1+1; alloc 1+1; requested 1+1; completed 1+1; ");

  // What is done with at once ends before its address is anybody's again, and what waits does so with the next one that is given
  // back.
  const auto give_back = [&](uint64_t mib) {
    history->release(&core, reinterpret_cast<void*>(mib * kMiB), {});
    next_one.join();
  };
  auto before = entries().size();
  give_back(3);
  expect("a block ends at once", entries().substr(before), "requested 3+1; completed 3+1; alloc 3+2; ");
  before = entries().size();
  world.pending = true;
  history->free_requested({5 * kMiB, kMiB, kMiB, nullptr, 0}, {});
  give_back(4);
  expect("a block that waits", entries().substr(before), "requested 5+1; requested 4+1; completed 4+1; alloc 4+2; ");
  history->allocated(reinterpret_cast<void*>(8 * kMiB), kMiB, kMiB, nullptr, {7, 1}, {});
  std::vector<Entry> trace;
  auto same = [](auto time) { return int64_t(time); };
  history->merge_into(trace, same);
#if __cplusplus >= 202002L
  if constexpr (requires(Entry entry) { entry.mempool_; })
    if (trace.back().mempool_ != c10::cuda::MempoolId_t{7, 1}) world.problems.push_back("a pool's block is not said to be its");
#endif

  static std::string text;
  for (const auto& problem : world.problems) text += problem + "\n";
  return text.c_str();
}
