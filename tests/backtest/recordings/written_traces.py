"""Trace directories written from arrays."""

import gzip
from pathlib import Path

from cruise.domain.arrays import Float64Array


def write_trace(directory: Path, cpu_millicores: Float64Array, about: str, step_seconds: int = 300) -> Path:
    """Write a trace of CPU alone: one row a step, one column a series; returns the directory."""
    directory.mkdir()
    names = [f"pod-{number}" for number in range(cpu_millicores.shape[1])]
    rows = [f"{name},web-{name},1000,1073741824" for name in names]
    series = ["series,workload,cpu_request_millicores,memory_request_bytes", *rows]
    (directory / "series.csv").write_text("\n".join(series) + "\n")
    lines = [",".join(["t", *names])]
    lines += [",".join(map(str, [step_seconds * at, *row])) for at, row in enumerate(cpu_millicores.round().tolist())]
    (directory / "cpu_millicores.csv.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    title, _, words = about.partition("\n")
    (directory / "README.md").write_text(f"# {title.removesuffix('.')}\n{words}\n\nFiles: none else.\n")
    return directory
