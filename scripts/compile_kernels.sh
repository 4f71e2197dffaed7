#!/usr/bin/env bash
# Compiles the packer's kernels where its process looks for them; prints nothing if they are compiled.
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv/bin/python - <<'PYTHON'
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

from cruise.runtime.packing.kernel_cache import choose_cache_directory, count_compiled_kernels, is_cache_warm
from cruise.runtime.packing.solver_process import compile_kernels

cache = choose_cache_directory(os.environ)
if cache is not None and not is_cache_warm(cache):
    # A terminal shows every second on one line, a log every ten seconds on a new line.
    pause, end = (1, "\r") if sys.stdout.isatty() else (10, "\n")
    begun, done = time.monotonic(), False
    with ThreadPoolExecutor() as pool:
        compiling = pool.submit(compile_kernels)
        while not done:
            compiled, kernels = count_compiled_kernels(cache)
            seconds = time.monotonic() - begun
            print(f"install: the packer's kernels, {compiled} of {kernels} ... {seconds:.0f} s", end=end, flush=True)
            done = not wait([compiling], timeout=pause).not_done
        compiling.result()
    print(f"install: the packer's kernels, {kernels} of {kernels} ... {time.monotonic() - begun:.0f} s")
PYTHON
