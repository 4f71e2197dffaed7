"""Describes the files of a release: `python -m scripts.release DIRECTORY` writes its provenance and SHA256SUMS."""

import json
import sys
from pathlib import Path

from scripts.provenance import build_statement, compute_sha256

SUMS = "SHA256SUMS"
PROVENANCE = "provenance.json"


def describe_release(directory: Path) -> None:
    """Write the provenance of every file of a release, and the sums of all, as `sha256sum --check` reads them."""
    made = sorted(path for path in directory.iterdir() if path.name not in (SUMS, PROVENANCE))
    statement = build_statement("release", {path.name: compute_sha256(path) for path in made})
    (directory / PROVENANCE).write_text(json.dumps(statement, indent=1, sort_keys=True) + "\n")
    lines = [f"{compute_sha256(path)}  {path.name}\n" for path in (*made, directory / PROVENANCE)]
    (directory / SUMS).write_text("".join(lines))
    for path in made:
        print(f"release: {path.name}, {path.stat().st_size / 1e3:,.0f} kB")


if __name__ == "__main__":
    describe_release(Path(sys.argv[1]))
