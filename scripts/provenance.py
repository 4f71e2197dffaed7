"""Provenance of what a build made: an unsigned in-toto statement with SLSA's predicate."""

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
# What a build reads besides the source; the statement has the hash of each.
PINS = (
    "requirements.txt",
    "requirements-cloud.txt",
    "requirements-build.txt",
    "requirements-lock.txt",
    "requirements-supply.txt",
)


def git(*arguments: str) -> str:
    """Return the output of git in the checkout."""
    done = subprocess.run(
        ["git", *arguments], cwd=CHECKOUT, env={**os.environ, "TZ": "UTC"}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def describe_commit() -> str:
    """Return the commit that is checked out; with the ending -changed if files differ from it."""
    commit = git("rev-parse", "HEAD")
    return f"{commit}-changed" if git("status", "--porcelain") else commit


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_statement(
    target: str,
    subjects: Mapping[str, str],
    files: Iterable[str] = PINS,
    dependencies: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the statement on what `make TARGET` made: `subjects` are SHA-256 digests by name."""
    named = [{"uri": f"file:{name}", "digest": {"sha256": compute_sha256(CHECKOUT / name)}} for name in files]
    source = {"uri": "git:cruise", "digest": {"gitCommit": describe_commit()}}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"urn:cruise:make-{target}:1",
                "externalParameters": {"target": target},
                "resolvedDependencies": [source, *named, *dependencies],
            },
            "runDetails": {"builder": {"id": "urn:cruise:checkout"}},
        },
    }
