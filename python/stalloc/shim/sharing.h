// Blocks of the arena for another process or device.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "core.h"
#include "versions.h"

namespace stalloc {

constexpr char CANNOT_SHARE[] = "stalloc: this tensor cannot be shared with another process: ";

// Says why, and what to do.
[[noreturn]] inline void refuse_to_share(const char* why) {
  TORCH_CHECK(false, CANNOT_SHARE, why,
              "; run with `stalloc run --solid` (STALLOC_SOLID=1), or share tensor.clone() made under "
              "torch.cuda.use_mem_pool(torch.cuda.MemPool())");
}

struct Sharing {
  using Handle = c10::cuda::CUDACachingAllocator::ShareableHandle;

  const StallocCore* core;

  // The address and bytes of the allocation that a live block is part of: the whole arena if that is one, else the block.
  void* allocation_around(const StallocBlock& block, size_t* size) const {
    const auto arena = solid_arena(block);
    if (size != nullptr) *size = arena.size > 0 ? arena.size : block.size;
    return reinterpret_cast<void*>(arena.size > 0 ? arena.address : block.address);
  }

  Handle share(const StallocBlock& block) const {
    const auto arena = solid_arena(block);
    return arena.size > 0 ? share_solid(arena, block) : share_pages(block);
  }

  // `user` may use the memory of `owner` from now on. Memory that is mapped by pages has to be told.
  void allow_peer(c10::DeviceIndex user, c10::DeviceIndex owner) const {
    TORCH_CHECK(core->allow_peer(owner, user), "stalloc: the planned arena of GPU ", int(owner), " cannot be opened to GPU ",
                int(user));
  }

  // Whether only cudaMemcpyPeerAsync copies between two devices: without peer access it does what is mapped by pages.
  bool is_for_peers(const void* to, int to_device, const void* from, int from_device, bool p2p) const {
    return !p2p && to_device != from_device && (core->owns(to, nullptr) || core->owns(from, nullptr));
  }

 private:
  // The arena that a block lies in, if it is one allocation of the driver's.
  StallocArena solid_arena(const StallocBlock& block) const {
    StallocArena arena{};
    int index = 0;
    if (core->owns(reinterpret_cast<const void*>(block.address), &index) && core->is_solid(index)) core->arena(index, &arena);
    return arena;
  }

  // As the native allocator shares what it has from cudaMalloc: the allocation's handle, and where in it the block is.
  static Handle share_solid(const StallocArena& arena, const StallocBlock& block) {
    cudaIpcMemHandle_t handle;
    C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(arena.address)));
    // Version 1 of the format, which every reader knows; 'c': memory from cudaMalloc.
    std::string text("\1c");
    text.append(reinterpret_cast<const char*>(&handle), sizeof handle);
    return {ptrdiff_t(block.address - arena.address), std::move(text)};
  }

  // As the native allocator shares an expandable segment: its pages' descriptors, which the other process gets from this one.
  Handle share_pages(const StallocBlock& block) const {
#if STALLOC_OPENS_PAGES
    StallocExport exported{};
    std::vector<int> descriptors;
    char why[512] = "";
    const auto* address = reinterpret_cast<const void*>(block.address);
    auto count = core->share(address, &exported, nullptr, 0, why, sizeof why);
    if (count == 0) refuse_to_share(why);
    descriptors.resize(count);
    count = core->share(address, &exported, descriptors.data(), count, why, sizeof why);
    if (count != descriptors.size()) refuse_to_share(why);
    const PagesHeader header(getpid(), exported.page, count);
    std::string text{PAGES_VERSION, 'e'};
    text.append(reinterpret_cast<const char*>(&header), sizeof header);
    text.append(reinterpret_cast<const char*>(descriptors.data()), count * sizeof(int));
    // Who reads it looks no further; but it keeps what it opened by the whole text, and descriptors' numbers are used again.
    text.append(reinterpret_cast<const char*>(&exported.serial), sizeof exported.serial);
    return {ptrdiff_t(exported.offset), std::move(text)};
#else
    refuse_to_share("it is mapped by pages, which PyTorch shares from 2.5 on");
#endif
  }
};

}  // namespace stalloc
