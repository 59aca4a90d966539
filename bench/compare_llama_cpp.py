#!/usr/bin/env python3
"""Decode and prefill speed on the CPU beside llama.cpp: same file, same machine, same threads, taking turns.

    python3 -m venv peer && peer/bin/pip install llama-cpp-python      # compiles llama.cpp for this machine
    peer/bin/python bench/compare_llama_cpp.py -m model.gguf

Each round runs ours and then llama.cpp, with flash attention off and on; its better one counts. Every run is a process
of its own that warms up first. llama.cpp is called below its Python classes: llama_decode alone is timed, no sampling.
Ours samples within the timed step. Prints a table and writes bench/results/cpu/llama_cpp.json.
"""

import argparse
import ctypes
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "bench" / "results" / "cpu" / "llama_cpp.json"
TESTS = {"prefill": "tokens_per_s", "decode": "tokens_per_s"}


def ids(count, vocab):
    """Any ids do, every token costs the same: those of `llmspeed bench model`."""
    state, out = 1, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append((state >> 8) % vocab)
    return out


def measure_llama_cpp(model_path, threads, prompt_tokens, new_tokens, flash_attention):
    """Tokens per second of llama_decode; runs in a process of its own."""
    import llama_cpp as lib

    silent = lib.llama_log_callback(lambda level, text, user: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    model_params = lib.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(model_path.encode(), model_params)
    params = lib.llama_context_default_params()
    params.n_ctx = max(prompt_tokens, new_tokens + 2)
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = (lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash_attention else
                              lib.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("llama.cpp made no context")
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    memory = lib.llama_get_memory(context)

    def decode(tokens):
        array = (lib.llama_token * len(tokens))(*tokens)
        start = time.perf_counter()
        if lib.llama_decode(context, lib.llama_batch_get_one(array, len(tokens))):
            raise SystemExit("llama_decode failed")
        lib.llama_synchronize(context)
        return time.perf_counter() - start

    prompt = ids(prompt_tokens, vocab)
    prefill, steps = 0, []
    for warm in (False, True):
        lib.llama_memory_clear(memory, True)
        prefill = decode(prompt)
        lib.llama_memory_clear(memory, True)
        decode(prompt[:1])
        steps = [decode([token]) for token in ids(new_tokens if warm else 8, vocab)]
    return {
        "prefill": prompt_tokens / prefill,
        "decode": 1 / statistics.median(steps),
        "system": lib.llama_print_system_info().decode().strip(),
    }


def run_json(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def run_ours(args, threads):
    found = run_json([args.llmspeed, "bench", "model", "-m", args.model, "--device", "cpu", "-t", str(threads),
                      "-r", "1", "-p", str(args.prompt), "-n", str(args.new), "--json"])
    return {test: found[test]["tokens_per_s"] for test in TESTS} | {"machine_gbps": found["machine_gbps"],
                                                                   "bytes_per_token": found["bytes_per_token"]}


def run_peer(args, threads, flash_attention):
    return run_json([sys.executable, __file__, "-m", args.model, "-p", str(args.prompt), "-n", str(args.new), "-t",
                     str(threads), "--measure-peer", "on" if flash_attention else "off"])


def compare(args, threads):
    ours, peer = [], {False: [], True: []}
    for round_ in range(args.rounds):
        ours.append(run_ours(args, threads))
        for flash_attention in peer:
            peer[flash_attention].append(run_peer(args, threads, flash_attention))
        print(f"{threads} threads, round {round_ + 1} of {args.rounds}: decode {ours[-1]['decode']:.1f}, llama.cpp "
              f"{peer[False][-1]['decode']:.1f} / {peer[True][-1]['decode']:.1f}", file=sys.stderr)
    rows = []
    for test in TESTS:
        mine = statistics.median(run[test] for run in ours)
        theirs = {on: statistics.median(run[test] for run in runs) for on, runs in peer.items()}
        rows.append({
            "test": test, "threads": threads, "tokens": args.prompt if test == "prefill" else args.new,
            "tokens_per_s": mine, "tokens_per_s_best": max(run[test] for run in ours),
            "llama_cpp_tokens_per_s": max(theirs.values()),
            "llama_cpp_tokens_per_s_best": max(run[test] for runs in peer.values() for run in runs),
            "llama_cpp_flash_attention": theirs[True] > theirs[False],
            "ratio": mine / max(theirs.values()),
        })
        if test == "decode":
            rows[-1]["floor_share"] = statistics.median(
                1e-9 * run["decode"] * run["bytes_per_token"] / run["machine_gbps"] for run in ours)
    return rows, peer[True][0]["system"]


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.processor(), "cores": len(names), "system": platform.platform()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of the prefill (default 512)")
    parser.add_argument("-n", "--new", type=int, default=128, help="tokens to decode (default 128)")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-t", "--threads", default="1,2", help="thread counts (default 1,2)")
    parser.add_argument("--llmspeed", default=str(ROOT / "build" / "release" / "cli" / "llmspeed"))
    parser.add_argument("-o", "--output", type=pathlib.Path, default=OUTPUT)
    parser.add_argument("--measure-peer", choices=["on", "off"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure_peer:
        found = measure_llama_cpp(args.model, int(args.threads), args.prompt, args.new, args.measure_peer == "on")
        print(json.dumps(found))
        return
    import llama_cpp

    rows, peer_system = [], ""
    for threads in map(int, args.threads.split(",")):
        found, peer_system = compare(args, threads)
        rows += found
    info = run_json([args.llmspeed, "info", "--json"])
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    result = {
        "machine": machine() | {"level": info["cpu"]["level"]},
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit.stdout.strip(), "llmspeed": info["version"], "llama_cpp_python": llama_cpp.__version__,
        "llama_cpp_system": peer_system, "model": pathlib.Path(args.model).name, "rounds": args.rounds, "rows": rows,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\ntokens/s, medians of {args.rounds} rounds\n"
          f"{'test':<14}{'threads':>8}{'llmspeed':>12}{'llama.cpp':>12}{'ratio':>8}")
    for row in rows:
        print(f"{row['test'] + ' ' + str(row['tokens']):<14}{row['threads']:>8}{row['tokens_per_s']:>12.1f}"
              f"{row['llama_cpp_tokens_per_s']:>12.1f}{row['ratio']:>8.2f}")


if __name__ == "__main__":
    main()
