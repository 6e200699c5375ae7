// The devices of the process and their arenas; what a thread says of itself while it allocates.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core.h"
#include "device.h"
#include "forwarded.h"
#include "versions.h"

namespace stalloc {

// What torch.compile says that it is compiling.
inline thread_local std::vector<std::string> compile_contexts;

template <typename Native>
struct Devices : Forwarded<Native> {
  using Forwarded<Native>::next;

  const StallocCore* core;
  std::vector<std::unique_ptr<Device>> devices;

  Devices(const StallocCore* table, Native* native_allocator, int count) : Forwarded<Native>(native_allocator), core(table) {
    for (int i = 0; i < count; ++i) devices.push_back(std::make_unique<Device>(core, i));
    // Called under the native allocator's lock: it may only leave a note.
    next->attachAllocatorTraceTracker([this](const TraceEntry& entry) {
      if (auto* device = find(entry.device_)) device->figures.outside_changes();
    });
  }

  Device* find(int device) { return device >= 0 && size_t(device) < devices.size() ? devices[device].get() : nullptr; }

  // The device of the arena that an address lies in.
  Device* owner(const void* address) {
    int index = 0;
    return core->owns(address, &index) ? find(index) : nullptr;
  }

  // Whether an address lies in a live block of an arena, and in which.
  bool ours(const void* address, StallocBlock* block) { return core->find(address, block) == 1; }

  // Gives the arena's idle memory back; returns the bytes.
  uint64_t trim(Device& device) {
    return device.trim([&] { return notes(); });
  }

  // What the thread says of itself, in the native allocator's words.
  Notes notes() {
    std::string metadata;
    if constexpr (HasUserMetadata<Native>::value) metadata = next->getUserMetadata();
    if (compile_contexts.empty() && metadata.empty()) return nullptr;
    return said(std::move(metadata));
  }
  Notes said(std::string metadata) {
    const std::string context = compile_contexts.empty() ? NO_CONTEXT : compile_contexts.back();
    return std::make_shared<const Said>(Said{context, std::move(metadata)});
  }

  void pushCompileContext(std::string& text) {
    compile_contexts.push_back(text);
    next->pushCompileContext(text);
  }
  void popCompileContext() {
    if (!compile_contexts.empty()) compile_contexts.pop_back();
    next->popCompileContext();
  }
};

}  // namespace stalloc
