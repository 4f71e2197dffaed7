"""The packer's inner loops, compiled by numba; nothing else here imports it."""
