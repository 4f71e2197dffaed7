#!/usr/bin/env bash
# Builds etcd and Kubernetes' control plane for the tests, once, at the lowest priority. Where Go is missing or too old,
# or the modules cannot be had, one line says so.
set -euo pipefail
python=.venv/bin/python
[[ -x $python ]] || python=python3
exec "$python" -m tests.controlplane.binaries
