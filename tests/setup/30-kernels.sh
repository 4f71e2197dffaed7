#!/usr/bin/env bash
# The packer's kernels, where the processes look for them that tests start: no plan waits for a compiler.
set -euo pipefail
exec "$(dirname "$0")/../../scripts/compile_kernels.sh"
