// The C interface between the shims and the Rust core. The core fills the table; a shim calls through it.
//
// No function throws or ends the process, whatever goes wrong in it, and none calls back into the shim. Every one may be called
// from any thread.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

// A shim refuses a core of another version than it was compiled for.
constexpr uint32_t STALLOC_CORE_VERSION = 11;

// A live block of an arena.
struct StallocBlock {
  uint64_t address;
  uint64_t size;       // rounded up, bytes
  uint64_t requested;  // bytes asked for
  void* stream;
  uint32_t pending;  // 1: given back, but another stream has not done with it
};

// The arena of one device.
struct StallocArena {
  uint64_t address;   // start of its address range; 0 if there is none
  uint64_t size;      // length of its address range, bytes
  uint64_t reserved;  // device memory behind it, bytes
};

// A part of an arena's address range.
struct StallocRange {
  uint64_t address, size;
};

// A part of a segment of the arena's memory: a live block, or what lies between two.
struct StallocPart {
  uint64_t address;
  uint64_t size;       // bytes; a block's is rounded up
  uint64_t requested;  // bytes asked for; 0 if it is free
  void* stream;        // its segment's
  uint32_t state;      // 0: free; 1: in use; 2: given back, but another stream has not done with it
  uint32_t begins;     // 1: the first of its segment
  uint32_t small;      // 1: its segment is for small requests
};

// How another process opens a block: by descriptors of this process, one for each page that the block lies on.
struct StallocExport {
  uint64_t page;    // bytes of a page
  uint64_t offset;  // of the block in the first page
  uint64_t serial;  // with the descriptors' numbers it names these pages for good
};

// One quantity: what there is, the most there was, and what came and went.
struct StallocCounter {
  uint64_t current, peak, allocated, freed;
};

// Some blocks of an arena.
struct StallocPool {
  StallocCounter blocks;
  StallocCounter bytes;      // rounded up
  StallocCounter requested;  // bytes asked for
};

// An arena's share of PyTorch's statistics: all blocks, those of at most 1 MiB, the others.
struct StallocCounters {
  StallocPool all, small, large;
  StallocCounter reserved;  // device memory behind the arena, bytes
};

// A part of the memory of a pool of graphs: a block, or what is free between two. Each piece of memory is in one part.
struct StallocPoolPart {
  uint64_t pool[2];
  StallocBlock block;
  uint32_t free;  // 1: no block
};

// How long calls of one kind took, microseconds.
struct StallocDurations {
  uint64_t total, longest, shortest, count;
};

// What is counted of pinned memory.
struct StallocPinned {
  StallocCounter blocks;     // that the program has, or that streams have not done with
  StallocCounter bytes;      // theirs, rounded up
  StallocCounter requested;  // bytes that the program asked for and has
  StallocCounter regions;    // what the blocks lie in
  StallocCounter reserved;   // their bytes
  StallocDurations taking;   // calls of the driver that took a region
  StallocDurations giving_back;
};

struct StallocCore {
  uint32_t version;

  // Serves `bytes` on a stream of a device from its arena and says how many bytes the block really takes. Null: the
  // request is the fallback's.
  void* (*serve)(int device, size_t bytes, void* stream, size_t* rounded);

  // Takes a block back and returns its rounded bytes; 0 if the address is no live block of an arena. Says what it was, if `block`
  // is not null, and whether another stream has not done with it.
  size_t (*release)(void* address, int* device, StallocBlock* block);

  // Finds the live block that an address lies in: 1 if there is one.
  int (*find)(const void* address, StallocBlock* block);

  // A block is used on another stream: it is not handed out again before that stream is done with it.
  void (*record_stream)(void* address, void* stream);

  // Work is being captured into a CUDA graph (or no longer): the arena serves nothing and polls no event meanwhile.
  void (*capturing)(int device, int active);

  // Gives device memory back that no live block needs; returns the bytes.
  uint64_t (*trim)(int device);

  // The arena's range and the memory behind it.
  void (*arena)(int device, StallocArena* out);

  // What is counted of the arena; then peaks begin again at what there is, and totals at nothing, if they are to.
  void (*counters)(int device, StallocCounters* out, int restart_peaks, int restart_totals);

  // Whether an address lies in an arena, live or not, and of which device. Takes no lock.
  int (*owns)(const void* address, int* device);

  // Lets the device `peer` use the memory of `device`'s arena; 0 if that cannot be had.
  int (*allow_peer)(int device, int peer);

  // What the fallback holds, after it may have changed: device memory, and the bytes of it that tensors use.
  void (*fallback_holds)(int device, uint64_t reserved, uint64_t allocated);

  // Arena and fallback together may hold so much device memory: the arena takes no more than the fallback leaves of it.
  // It keeps what it has. UINT64_MAX: no limit.
  void (*limit)(int device, uint64_t bytes);

  // Whether the arena is one allocation of the driver's: 1 if so.
  int (*is_solid)(int device);

  // How often the memory behind the arena changed so far. Takes no lock.
  uint64_t (*memory_changes)(int device);

  // Copies up to `capacity` parts of the arena's range that have memory behind them, in the order of addresses; returns how many
  // there are. `changes` is how often that memory had changed then.
  size_t (*memory)(int device, StallocRange* out, size_t capacity, uint64_t* changes);

  // Copies up to `capacity` parts of the arena's segments, all as they are at one moment, in the order of addresses; returns how
  // many there are. With `by_pool`, small blocks have segments of their own, so that the sums over segments of a kind are the
  // statistics by pool.
  size_t (*parts)(int device, int by_pool, StallocPart* out, size_t capacity);

  // A graph, or who runs before it is captured, holds a pool of the arena's from now on, until `pool_end`: 1; 0 if the arena has
  // no pools. A pool's addresses stay its own while anybody holds it.
  int (*pool_begin)(int device, uint64_t first, uint64_t second);
  void (*pool_end)(int device, uint64_t first, uint64_t second);

  // As `serve`, from a pool; while a graph is captured, too.
  void* (*pool_serve)(int device, uint64_t first, uint64_t second, size_t bytes, void* stream, size_t* rounded);

  // Copies up to `capacity` parts of all pools, in the order of addresses; returns how many there are.
  size_t (*pool_parts)(int device, StallocPoolPart* out, size_t capacity);

  // What lives in a pool is freed, and these blocks, which lived there at one moment, live again; returns how many of them do.
  size_t (*pool_restore)(int device, uint64_t first, uint64_t second, const StallocBlock* blocks, size_t count);

  // Serves `bytes` of pinned memory; new memory is taken with the driver of a GPU. Null: the request is PyTorch's.
  void* (*pinned_serve)(int device, size_t bytes);

  // Takes back what `pinned_serve` handed out. It is handed out again once the streams that used it are done.
  void (*pinned_release)(void* address);

  // A stream of a GPU was given work on the pinned block that an address lies in: 1; 0 if that is no block of ours.
  int (*pinned_record)(const void* address, int device, void* stream);

  // Gives pinned memory back that holds no block; returns the bytes.
  uint64_t (*pinned_trim)();

  // What is counted of pinned memory; then peaks begin again at what there is, and totals at nothing, if they are to.
  void (*pinned_counters)(StallocPinned* out, int restart_peaks, int restart_totals);

  // Lets other processes open the block that begins at an address, until it is released. Copies up to `capacity` descriptors,
  // which stay the core's, and returns how many there are. 0: they cannot; why is in `why`, at most `room` bytes with a zero at
  // the end.
  size_t (*share)(const void* address, StallocExport* out, int* descriptors, size_t capacity, char* why, size_t room);
};
}
