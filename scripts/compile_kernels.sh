#!/usr/bin/env bash
# Compiles the packer's kernels where its process will look for them; says nothing where that is done.
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv/bin/python - <<'PYTHON'
import os

from cruise.runtime.packing.kernel_cache import choose_cache, is_warm
from cruise.runtime.packing.process import compile_kernels

if not is_warm(choose_cache(os.environ)):
    print("install: the packer's kernels, a minute or two", flush=True)
    compile_kernels()
PYTHON
