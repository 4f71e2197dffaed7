"""`python -m tests.fuzz KIND`: coverage-guided cases of one kind until one fails or memory keeps growing."""

import argparse
import gc
import logging
import sys
from pathlib import Path

import atheris
import structlog

# Coverage counts the branches of everything imported from here on.
with atheris.instrument_imports(include=["cruise"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS

from tests.fuzz.mutation import mutated_json

PAGE_BYTES = 4096
# Longer ones take long and reach nothing more.
LONGEST_BYTES = 8 << 10
# What caches and the corpus may take once the first tenth has filled them.
MOST_GROWTH_BYTES = 96 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=sorted(TARGETS))
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, required=True, help="where examples and a broken case are kept")
    chosen = parser.parse_args()
    # Rejected cases are logged, one line each.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    target = TARGETS[chosen.kind]()
    corpus = chosen.directory / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, example in enumerate(target.examples):
        target.feed(example)
        (corpus / f"example-{number}").write_bytes(example)
    done, baseline = 0, 0

    def case(data: bytes) -> None:
        nonlocal done, baseline
        done += 1
        try:
            target.feed(data)
        except BaseException:
            (chosen.directory / "broken").write_bytes(data)
            raise
        if done == chosen.cases // 10:
            gc.collect()
            baseline = resident_bytes()
        elif done == chosen.cases:
            gc.collect()
            grown = resident_bytes() - baseline
            print(f"{chosen.kind}: {done:,} cases, grown by {grown / (1 << 20):.1f} MiB", flush=True)
            most = MOST_GROWTH_BYTES + target.kept_bytes * (chosen.cases - chosen.cases // 10)
            assert grown < most, f"memory grew by {grown:,} bytes"

    def mutate(data: bytes, most_bytes: int, seed: int) -> bytes:
        found = mutated_json(data, most_bytes, seed) if seed % 4 else None
        return found if found is not None else bytes(atheris.Mutate(data, most_bytes))

    atheris.Setup(
        [
            sys.argv[0],
            f"-runs={chosen.cases}",
            f"-seed={chosen.seed}",
            f"-max_len={LONGEST_BYTES}",
            f"-artifact_prefix={chosen.directory}/",
            "-timeout=120",
            "-rss_limit_mb=2048",
            str(corpus),
        ],
        case,
        **({"custom_mutator": mutate} if target.is_json else {}),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
