// Blocks of the arena for another process or device.
#pragma once
#include <c10/cuda/CUDAException.h>

#include <string>
#include <utility>

#include "core.h"
#include "snapshots.h"
#include "versions.h"

namespace stalloc {

// The arena that an address lies in, if it is one allocation of the driver's.
inline StallocArena solid_arena(const StallocCore* core, const void* address) {
  StallocArena arena{};
  int index = 0;
  if (core->owns(address, &index) && core->is_solid(index)) core->arena(index, &arena);
  return arena;
}

// The allocation that a live block is part of: the whole arena if that is one, else the block.
inline StallocRange allocation_around(const StallocCore* core, const StallocBlock& block) {
  const auto arena = solid_arena(core, reinterpret_cast<const void*>(block.address));
  return arena.size > 0 ? StallocRange{arena.address, arena.size} : StallocRange{block.address, block.size};
}

// As the native allocator shares what it has from cudaMalloc: the allocation's handle, and where in it the block is.
template <typename Handle = c10::cuda::CUDACachingAllocator::ShareableHandle>
Handle share(const StallocCore* core, const StallocBlock& block) {
  const auto arena = solid_arena(core, reinterpret_cast<const void*>(block.address));
  TORCH_CHECK(
      arena.size > 0,
      "stalloc: this tensor lives in the planned arena, whose memory is mapped by pages and cannot be shared with another "
      "process; run with `stalloc run --solid` (STALLOC_SOLID=1), or share tensor.clone() made under "
      "torch.cuda.use_mem_pool(torch.cuda.MemPool())");
  cudaIpcMemHandle_t handle;
  C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(arena.address)));
  // Version 1 of the format, which every reader knows; 'c': memory from cudaMalloc.
  std::string text("\1c");
  text.append(reinterpret_cast<const char*>(&handle), sizeof handle);
  return {ptrdiff_t(block.address - arena.address), std::move(text)};
}

template <typename Native>
struct Sharing : Snapshots<Native> {
  using Snapshots<Native>::Snapshots;
  using Snapshots<Native>::core;
  using Snapshots<Native>::next;
  using Snapshots<Native>::ours;

  void* getBaseAllocation(void* address, size_t* size) {
    StallocBlock block{};
    if (!ours(address, &block)) return next->getBaseAllocation(address, size);
    const auto whole = allocation_around(core, block);
    if (size != nullptr) *size = whole.size;
    return reinterpret_cast<void*>(whole.address);
  }

  native::ShareableHandle shareIpcHandle(void* address) {
    StallocBlock block{};
    return ours(address, &block) ? share(core, block) : next->shareIpcHandle(address);
  }

  // `user` may use the memory of `owner` from now on. Memory that is mapped by pages has to be told.
  void enablePeerAccess(c10::DeviceIndex user, c10::DeviceIndex owner) {
    next->enablePeerAccess(user, owner);
    TORCH_CHECK(core->allow_peer(owner, user), "stalloc: the planned arena of GPU ", int(owner), " cannot be opened to GPU ",
                int(user));
  }

  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream,
                          bool p2p) {
    // Without peer access this is the only call that copies what is mapped by pages.
    if (!p2p && to_device != from_device && (core->owns(to, nullptr) || core->owns(from, nullptr)))
      return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
    return next->memcpyAsync(to, to_device, from, from_device, bytes, stream, p2p);
  }
};

}  // namespace stalloc
