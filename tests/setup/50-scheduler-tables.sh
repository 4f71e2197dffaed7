#!/usr/bin/env bash
# Writes down the verdicts of kube-scheduler's own test tables, once, at the lowest priority: its module's tests are
# patched, built and run. Where Go is missing or too old, or the modules cannot be had, one line says so.
set -euo pipefail
python=.venv/bin/python
[[ -x $python ]] || python=python3
exec "$python" -m tests.scheduler_tables.building
