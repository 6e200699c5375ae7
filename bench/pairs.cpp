// Replays a sequence of requests through PyTorch's own entry points, against an allocator of choice, and times it.
//
// Compiled by pairs.py like the shims. Plain functions, so that it needs no binding.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

CUDAAllocator* current() { return c10::cuda::CUDACachingAllocator::allocator.load(); }

// Allocates `size` bytes for a request if it is positive, else gives the request's block back; in order.
struct Operation {
  uint32_t request;
  int64_t size;
};

// Runs operations, times what lies between two of them, and returns nanoseconds.
template <typename Block, typename Allocate, typename Free>
uint64_t replay(const Operation* operations, size_t from, size_t count, size_t requests, Allocate allocate, Free free) {
  std::vector<Block> blocks(requests);
  auto run = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto& operation = operations[i];
      if (operation.size > 0)
        blocks[operation.request] = allocate(size_t(operation.size));
      else
        free(blocks[operation.request]);
    }
  };
  run(0, from);
  auto start = std::chrono::steady_clock::now();
  run(from, count);
  auto time = std::chrono::steady_clock::now() - start;
  for (auto& block : blocks) free(block);
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

extern "C" {

// The allocator that PyTorch uses now.
void* pairs_allocator() { return current(); }

// Has PyTorch use another one: for a comparison within one process.
void pairs_use(void* allocator) { c10::cuda::CUDACachingAllocator::allocator.store(static_cast<CUDAAllocator*>(allocator)); }

// Wakes an allocator that PyTorch does not use, and so has not woken.
void pairs_init(void* allocator, int devices) { static_cast<CUDAAllocator*>(allocator)->init(devices); }

// As a tensor's storage is made and destroyed: `allocate()`, and the deleter of its DataPtr.
uint64_t pairs_storage(const Operation* operations, size_t from, size_t count, size_t requests) {
  auto* allocator = current();
  return replay<c10::DataPtr>(
      operations, from, count, requests, [&](size_t size) { return allocator->allocate(size); },
      [](c10::DataPtr& block) { block.clear(); });
}

// As torch.cuda.caching_allocator_alloc and libraries do.
uint64_t pairs_raw(const Operation* operations, size_t from, size_t count, size_t requests) {
  auto* allocator = current();
  return replay<void*>(
      operations, from, count, requests, [&](size_t size) { return allocator->raw_alloc(size); },
      [&](void*& block) {
        if (block != nullptr) allocator->raw_delete(block);
        block = nullptr;
      });
}

// As a program in C++ does: whole tensors, through the dispatcher.
uint64_t pairs_tensor(const Operation* operations, size_t from, size_t count, size_t requests) {
  auto options = at::TensorOptions().dtype(at::kByte).device(at::kCUDA);
  return replay<at::Tensor>(
      operations, from, count, requests, [&](size_t size) { return at::empty({int64_t(size)}, options); },
      [](at::Tensor& block) { block.reset(); });
}
}
