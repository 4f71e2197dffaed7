"""The packer's inner loops, compiled by numba; only this package imports it."""
