"""Replays recorded events with settings of PyTorch's allocator in its own library, without a GPU.

    python settings.py FOLDER WHEELS          writes tests/golden/c10/settings.csv and parsed.csv

FOLDER receives the programs that `build.sh` makes. WHEELS is a folder with the unpacked wheels torch==2.11.0,
nvidia-cuda-runtime==13.0.96 and nvidia-cuda-crt==13.0.88.
"""

import csv
import gzip
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "..", "golden")
TRACES = os.path.join(GOLDEN, "truth", "traces")

MIB = 1 << 20
# Memory of the GPU that the allocator does not receive: the CUDA context.
OUTSIDE = 500 * MIB
ENDLESS = 1 << 45

SETTINGS = [
    "max_split_size_mb:20",
    "max_split_size_mb:64",
    "max_split_size_mb:128,max_non_split_rounding_mb:64",
    "max_split_size_mb:32,max_non_split_rounding_mb:400",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:[1:8,4:4,16:1,64:16,>:2]",
    "roundup_power2_divisions:4,max_split_size_mb:64",
    "garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.95",
    "garbage_collection_threshold:0.3,per_process_memory_fraction:0.9,max_split_size_mb:40",
    "per_process_memory_fraction:0.8",
    "large_segment_size_mb:64",
    "large_segment_size_mb:11,max_split_size_mb:20",
    "expandable_segments:True,max_split_size_mb:64",
    "expandable_segments:True,garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,large_segment_size_mb:40",
]

# Capacities, as a share of the reserved memory without a limit.
SHARES = [0.5, 0.75, 0.9, 0.97]

COLUMNS = "tag settings total capacity failed_event memory_allocated memory_reserved max_memory_allocated max_memory_reserved".split()

PARSED = [
    "",
    "max_split_size_mb:64",
    "max_split_size_mb:20",
    "max_split_size_mb:19",
    "max_split_size_mb:64,",
    "max_split_size_mb:64,,",
    ",max_split_size_mb:64",
    "max_split_size_mb: 6 4",
    "max_split_size_mb:64x",
    "max_split_size_mb:+64",
    "max_split_size_mb:-1",
    "max_split_size_mb:x",
    "max_split_size_mb",
    "max_split_size_mb:",
    "max_split_size_mb=64",
    "max_split_size_mb,64,expandable_segments,True",
    "max_split_size_mb:64:7",
    "max_split_size_mb:99999999999999999999999",
    "max_split_size_mb:17592186044416",
    "max_split_size_mb:64 garbage_collection_threshold:0.5",
    "max_non_split_rounding_mb:19",
    "max_non_split_rounding_mb:100",
    "large_segment_size_mb:10",
    "large_segment_size_mb:30",
    "large_segment_size_mb:30,max_non_split_rounding_mb:25",
    "max_non_split_rounding_mb:25,large_segment_size_mb:30",
    "garbage_collection_threshold:0.8",
    "garbage_collection_threshold:.5abc",
    "garbage_collection_threshold:5e-1",
    "garbage_collection_threshold:0",
    "garbage_collection_threshold:1",
    "garbage_collection_threshold:nan",
    "garbage_collection_threshold:abc",
    "per_process_memory_fraction:0.5",
    "per_process_memory_fraction:1.5",
    "per_process_memory_fraction:0",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:0",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:[]",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:64",
    "roundup_power2_divisions:[4:0,>:2]",
    "roundup_power2_divisions:[>:4]",
    "roundup_power2_divisions:[>:4,256:2]",
    "roundup_power2_divisions:[512:2,256:4]",
    "roundup_power2_divisions:[131072:4]",
    "roundup_power2_divisions:[131072:4,>:2]",
    "roundup_power2_divisions:[3:1]",
    "roundup_power2_divisions:[4:3]",
    "roundup_power2_divisions:[0:4]",
    "roundup_power2_divisions:[256:1",
    "roundup_power2_divisions:[256",
    "roundup_power2_divisions:[256:1 512:2]",
    "expandable_segments:True",
    "expandable_segments:False",
    "expandable_segments:true",
    "expandable_segments:True,expandable_segments:False",
    "backend:native",
    "backend:foo",
    "pinned_use_background_threads:True",
    "pinned_use_background_threads:1",
    "pinned_num_register_threads:8",
    "pinned_num_register_threads:3",
    "pinned_num_register_threads:256",
    "pinned_reserve_segment_size_mb:0",
    "pinned_reserve_segment_size_mb:8",
    "pinned_use_cuda_host_register:True",
    "release_lock_on_cudamalloc:True",
    "graph_capture_record_stream_reuse:False",
    "throw_on_cudamalloc_oom:True",
    "no_such_key:1",
    "no_such_key:[1:2],max_split_size_mb:64",
    "[",
    ":",
]


def run(folder, settings, events=b"", limit=ENDLESS, total=ENDLESS, arguments=()):
    """The lines that `replay` prints, or the error that ends it."""
    variables = dict(os.environ)
    variables |= dict(
        LD_PRELOAD=os.path.join(folder, "libcudart.so.13"),
        PYTORCH_ALLOC_CONF=settings,
        DEVICE_LIMIT=str(limit),
        DEVICE_TOTAL=str(total),
    )
    command = [os.path.join(folder, "replay"), *arguments]
    done = subprocess.run(command, input=events, env=variables, capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout.decode().splitlines()
    # An error of a static constructor ends the process: its message is on standard error.
    errors = [line for line in done.stderr.decode().splitlines() if "what():" in line]
    if not errors:
        raise RuntimeError(f"cannot replay with {settings!r}: {done.returncode} {done.stderr.decode()[:2000]}")
    return ["refused: " + errors[0].split("what():")[1].strip()]


def events_of(path):
    """The events of a trace, a line each."""
    lines = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if event.get("event") == "alloc":
                lines.append(f"{event['id']} {event['bytes']}\n")
            elif event.get("event") == "free":
                lines.append(f"{event['id']} -1\n")
    return "".join(lines).encode()


def rows(folder):
    for name in sorted(os.listdir(TRACES)):
        events = events_of(os.path.join(TRACES, name))
        tag = name.removesuffix(".jsonl.gz")
        plain = int(run(folder, "", events)[0].split(",")[4])
        for settings in SETTINGS:
            limits = [(ENDLESS, ENDLESS)]
            for share in SHARES:
                capacity = int(plain * share) // 512 * 512
                limits.append((capacity, capacity + OUTSIDE))
            for capacity, total in limits:
                figures = run(folder, settings, events, capacity, total)[0].split(",")
                yield [tag, settings, total, capacity, *figures]


def main():
    folder, wheels = map(os.path.abspath, sys.argv[1:])
    subprocess.run(["sh", os.path.join(HERE, "build.sh"), folder, wheels], check=True)
    with open(os.path.join(GOLDEN, "c10", "settings.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows(folder))
    with open(os.path.join(GOLDEN, "c10", "parsed.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["settings", "parsed"])
        writer.writerows([settings, run(folder, settings, arguments=["settings"])[0]] for settings in PARSED)


if __name__ == "__main__":
    main()
