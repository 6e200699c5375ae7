// Replays a sequence of requests through PyTorch's own entry points, against an allocator of choice, and times it.
//
// Compiled by pairs.py like the shims. Plain functions, so that it needs no binding.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <utility>
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

// A thread's processor time, nanoseconds.
uint64_t thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

// PyTorch's own streams of the current device: the default one, then those of its pools, which hold 32 of each priority.
std::vector<cudaStream_t> streams(size_t count) {
  std::vector<cudaStream_t> found{c10::cuda::getDefaultCUDAStream().stream()};
  for (size_t i = 0; found.size() < count && i < 256; ++i) {
    auto stream = c10::cuda::getStreamFromPool(i >= 128).stream();
    if (std::find(found.begin(), found.end(), stream) == found.end()) found.push_back(stream);
  }
  return found;
}

}  // namespace

// A cell of the grid: `live` blocks on `streams` streams, of which `threads` threads exchange `pairs` one after another. Sizes
// are drawn: evenly by logarithm between `smallest` and `largest`, and every 50th is 16 times as large.
struct Cell {
  uint64_t streams, live, pairs, threads, smallest, largest, seed;
};

// What an exchange took, nanoseconds of processor time.
struct Took {
  uint64_t total;    // of all pairs of free and malloc
  uint64_t longest;  // malloc
};

extern "C" {

// Runs a cell. Blocks are given back at the end.
void pairs_exchange(const Cell* cell, Took* out) {
  auto* allocator = current();
  const auto all = streams(cell->streams);
  const size_t threads = std::max<size_t>(cell->threads, 1);
  std::vector<Took> took(threads, Took{});
  auto work = [&](size_t thread) {
    std::mt19937_64 random(cell->seed * 1000 + thread);
    std::uniform_real_distribution<double> logarithm(std::log(double(cell->smallest)), std::log(double(cell->largest)));
    auto draw = [&] {
      auto size = size_t(std::exp(logarithm(random)));
      return random() % 50 == 0 ? 16 * size : size;
    };
    std::vector<void*> blocks(std::max<size_t>(cell->live / threads, 1));
    auto stream = [&] { return all[random() % all.size()]; };
    for (auto& block : blocks) block = allocator->raw_alloc_with_stream(draw(), stream());
    const size_t pairs = cell->pairs / threads;
    // What is drawn costs no time of the allocator's.
    std::vector<std::pair<uint32_t, std::pair<size_t, cudaStream_t>>> drawn(pairs);
    for (auto& one : drawn) one = {uint32_t(random() % blocks.size()), {draw(), stream()}};
    auto& mine = took[thread];
    const uint64_t began = thread_time();
    for (size_t i = 0; i < pairs; ++i) {
      const auto& [which, request] = drawn[i];
      allocator->raw_delete(blocks[which]);
      blocks[which] = allocator->raw_alloc_with_stream(request.first, request.second);
    }
    mine.total = thread_time() - began;
    // Once more for the longest one: a look at the clock costs as much as a malloc.
    for (size_t i = 0; i < pairs; i += 4) {
      const auto& [which, request] = drawn[i];
      allocator->raw_delete(blocks[which]);
      const uint64_t before = thread_time();
      blocks[which] = allocator->raw_alloc_with_stream(request.first, request.second);
      mine.longest = std::max(mine.longest, thread_time() - before);
    }
    for (auto* block : blocks) allocator->raw_delete(block);
  };
  std::vector<std::thread> others;
  for (size_t thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (auto& other : others) other.join();
  *out = Took{};
  for (const auto& mine : took) {
    out->total += mine.total;
    out->longest = std::max(out->longest, mine.longest);
  }
}

// The allocator that PyTorch uses now.
void* pairs_allocator() { return current(); }

// Has PyTorch use another one: for a comparison within one process.
void pairs_use(void* allocator) { c10::cuda::CUDACachingAllocator::allocator.store(static_cast<CUDAAllocator*>(allocator)); }

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
