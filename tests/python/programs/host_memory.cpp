// Stands in front of PyTorch's CPU allocator, as front.cpp does on a GPU: serves CPU tensors from a planned arena, records
// them, or both. This is how the core is held to real arithmetic on a machine without a GPU: what two live tensors share
// by mistake shows in the losses, and the record of a served run is a log of every address for others to check.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "core.h"

// Where every request is reported: `crates/python/src/host.rs` fills it. Called from any thread.
struct StallocHostLog {
  void (*allocated)(void* address, size_t bytes);
  void (*freed)(void* address);
};

namespace {

constexpr int HOST = -1;  // the core's number for host memory

const StallocCore* core = nullptr;    // null: nothing is served
const StallocHostLog* log = nullptr;  // null: nothing is recorded
c10::Allocator* next = nullptr;

// A forked child has copies of the arena's tensors, and of locks that other threads of its parent may have held. It never
// asks the core again: new tensors are the next allocator's, and blocks of the arena end with the child.
std::atomic<bool> is_child{false};
std::atomic<uint64_t> arena_start{0}, arena_end{0};

void learn_arena() {
  StallocArena arena{};
  core->arena(HOST, &arena);
  arena_end.store(arena.address + arena.size, std::memory_order_relaxed);
  arena_start.store(arena.address, std::memory_order_release);
}

bool in_arena(void* address) {
  uint64_t start = arena_start.load(std::memory_order_acquire), at = reinterpret_cast<uint64_t>(address);
  return start != 0 && at >= start && at < arena_end.load(std::memory_order_relaxed);
}

void* take(size_t size) {
  if (core != nullptr && !is_child.load(std::memory_order_relaxed)) {
    size_t rounded = 0;
    if (void* address = core->serve(HOST, size, nullptr, &rounded)) {
      if (arena_start.load(std::memory_order_acquire) == 0) learn_arena();
      return address;
    }
  }
  return next->raw_allocate(size);
}

void release(void* address) {
  if (address == nullptr) return;
  bool child = is_child.load(std::memory_order_relaxed);
  // Before the address can be handed out again, so that the log is never ahead of itself.
  if (log != nullptr && !child) log->freed(address);
  if (!in_arena(address)) return next->raw_deallocate(address);
  if (!child) core->release(address, nullptr, nullptr);
}

struct Host final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    void* address = take(size);
    if (log != nullptr && !is_child.load(std::memory_order_relaxed)) log->allocated(address, size);
    return {address, address, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

// Installs the allocator; either table may be null. Returns null, or what went wrong.
extern "C" const char* stalloc_host_install(const StallocCore* table, const StallocHostLog* recorder) {
  if (table != nullptr && table->version != STALLOC_CORE_VERSION)
    return "the shim and the stalloc library are of different versions";
  if (next != nullptr) return "it is installed already";
  core = table;
  log = recorder;
  next = c10::GetCPUAllocator();
  pthread_atfork(nullptr, nullptr, [] { is_child.store(true, std::memory_order_relaxed); });
  c10::SetCPUAllocator(new Host, 1);  // never destroyed: tensors outlive static destruction
  return nullptr;
}
