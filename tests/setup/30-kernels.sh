#!/usr/bin/env bash
# The packer's kernels, where the processes look for them that tests start: no plan waits for a compiler. Compiling takes
# minutes, so a fresh checkout gets those of an earlier one whose sources, interpreter and processor were the same.
set -euo pipefail
kept=${XDG_CACHE_HOME:-$HOME/.cache}/cruise/kernels
python=.venv/bin/python
"$python" -m tests.kept_kernels fetch "$kept"
"$(dirname "$0")/../../scripts/compile_kernels.sh"
"$python" -m tests.kept_kernels keep "$kept"
