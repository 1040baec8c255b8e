"""Records rows without a GPU: runs their training on fake tensors, then replays the events in PyTorch's allocator.

    python record.py ROWS OUT [--traces FOLDER] [--nanochat FOLDER]

ROWS is a file with the arguments of a run in each line, OUT the file of the finished rows. With `--traces`, the events of
rows that have a `trace` are written there, compressed. `--nanochat` is a checkout of karpathy/nanochat.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings

warnings.filterwarnings("ignore")

# Imports look up the real functions of `torch.cuda`, before a recorder replaces them.
import accelerate
import peft
import torch
import transformers.trainer
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "recorder"))

import huggingface
import nanochat_loop
from headroom_recorder.gpu import GPUS
from headroom_recorder.recorder import Recorder, expanded

LOOPS = {"hf": huggingface.train, "nanochat": nanochat_loop.train}


def record(row, path):
    """Runs a row in a process of its own. Returns the row with its facts. The events are in the file."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            recorder = Recorder(GPUS[row["capability"]]).start()
            facts = LOOPS[row["kind"]](row, recorder)
            with open(path, "w", encoding="utf-8") as file:
                for event in expanded(recorder.gpu, recorder.finish()):
                    file.write(" ".join(str(part).replace(" ", "_") for part in event if part != "") + "\n")
            with os.fdopen(writer, "w", encoding="utf-8") as pipe:
                json.dump(facts, pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        facts = pipe.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError(f"cannot record {json.dumps(row)}: see above")
    return row | json.loads(facts)


def figures(paths, folder):
    """The figures of the phases of each file."""
    driver = os.path.join(folder, "driver.so")
    source = os.path.join(HERE, "driver.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", driver, source], check=True)
    command = [sys.executable, os.path.join(HERE, "allocator.py"), *paths]
    lines = subprocess.run(command, env=os.environ | {"LD_PRELOAD": driver}, check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in lines.splitlines()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows")
    parser.add_argument("out")
    parser.add_argument("--traces")
    parser.add_argument("--nanochat")
    args = parser.parse_args()
    if args.nanochat:
        sys.path.insert(0, args.nanochat)
    with open(args.rows, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with tempfile.TemporaryDirectory() as folder:
        paths, done = [], []
        for at, row in enumerate(rows):
            path = os.path.join(folder, str(at))
            try:
                done.append(record(row, path))
            except RuntimeError as error:
                print(error, file=sys.stderr)
                continue
            paths.append(path)
            if args.traces and row.get("trace"):
                with open(path, "rb") as events, gzip.GzipFile(
                    os.path.join(args.traces, row["trace"] + ".txt.gz"), "wb", 9, mtime=0
                ) as out:
                    shutil.copyfileobj(events, out)
        with open(args.out, "w", encoding="utf-8") as out:
            for row, phases in zip(done, figures(paths, folder), strict=True):
                out.write(json.dumps(row | dict(torch=torch.__version__, phases=phases)) + "\n")
    if len(done) < len(rows):
        sys.exit(f"cannot record {len(rows) - len(done)} of {len(rows)} rows")


if __name__ == "__main__":
    main()
