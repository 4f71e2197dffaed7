"""Benchmarks: one module `bench_*.py` each, with `NAME: str` and `run() -> list[Row]`."""
