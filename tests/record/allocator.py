"""PyTorch's own caching allocator over a stand-in of the CUDA runtime: what a list of events allocates and reserves.

    LD_PRELOAD=driver.so python allocator.py EVENTS...

Prints a JSON array for each file of events, in a line: the figures of each phase.
"""

import json
import os
import sys

import torch

BLOCK = 512


class Allocator:
    """The allocator of this process."""

    def __init__(self):
        torch._C._cuda_init()
        self.addresses = {}

    def alloc(self, block, n_bytes):
        self.addresses[block] = torch._C._cuda_cudaCachingAllocator_raw_alloc(n_bytes, 0)

    def free(self, block):
        torch._C._cuda_cudaCachingAllocator_raw_delete(self.addresses.pop(block))

    def stats(self):
        """Current and maximum bytes: allocated, and reserved."""
        stats = torch._C._cuda_memoryStats(0)
        of = lambda name: (stats[name]["all"]["current"], stats[name]["all"]["peak"])
        return *of("allocated_bytes"), *of("reserved_bytes")


def figures(lines):
    """The figures of each phase, with the keys of tests/golden/measured/models. Live bytes are those of tensors, each
    rounded up to 512, without the larger blocks that the allocator may give them."""
    allocator, sizes, phases = Allocator(), {}, []
    live = live_peak = max_allocated = max_reserved = 0
    for line in lines:
        kind, *rest = line.split()
        if kind == "alloc":
            block, n_bytes = int(rest[0]), int(rest[1])
            sizes[block] = -(-n_bytes // BLOCK) * BLOCK
            live += sizes[block]
            live_peak = max(live_peak, live)
            allocator.alloc(block, n_bytes)
        elif kind == "free":
            live -= sizes.pop(int(rest[0]))
            allocator.free(int(rest[0]))
        elif kind == "empty_cache":
            torch._C._cuda_emptyCache()
        else:
            allocated, allocated_peak, reserved, reserved_peak = allocator.stats()
            max_allocated, max_reserved = max(max_allocated, allocated_peak), max(max_reserved, reserved_peak)
            phases.append(
                dict(
                    name=rest[0],
                    phase_peak_live=live_peak,
                    live_now=live,
                    phase_peak_allocated=allocated_peak,
                    max_memory_allocated=max_allocated,
                    max_memory_reserved=max_reserved,
                    allocated_now=allocated,
                    reserved_now=reserved,
                )
            )
            torch._C._cuda_resetPeakMemoryStats(0)
            live_peak = live
    return phases


def main():
    for path in sys.argv[1:]:
        # Each file has an allocator of its own.
        child = os.fork()
        if child == 0:
            with open(path, encoding="utf-8") as file:
                print(json.dumps(figures(file)), flush=True)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status != 0:
            raise RuntimeError(f"cannot replay {path}: the process ended with {status}")


if __name__ == "__main__":
    main()
