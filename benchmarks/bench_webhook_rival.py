"""The webhook compared with VPA's admission controller: the same reviews over TLS, one core each, one after the other.

`known` pods equal earlier ones, `first` pods have a new revision each, and `resized` pods also have new requests:
cruise caches answers and reuses patches, VPA computes each.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_webhook import PATH, WebhookProcess, load, running
from benchmarks.steady_reviews import answer_to
from benchmarks.table import BenchmarkRow
from benchmarks.vpa_admission import PATH as VPA_PATH
from benchmarks.vpa_admission import vpa_admission
from benchmarks.webhook_world import make_kinds

NAME = "webhook-rival"
WORKLOADS = 200
NODES = 200
KINDS = 60_000
ROUNDS = 3
SECONDS = 3
CONNECTIONS = 16
WANTED = {"known": 4.0, "first": 1.0, "resized": 1.0}


def run() -> list[BenchmarkRow]:
    """Measure the requests a second of both, and their ratio."""
    if shutil.which("wrk") is None:
        sys.exit("webhook-rival: wrk is not installed (apt install wrk)")
    rows = []
    with tempfile.TemporaryDirectory() as directory, vpa_admission(Path(directory), WORKLOADS) as theirs:
        kinds = make_kinds(KINDS, WORKLOADS)
        reviews = {"known": kinds[:WORKLOADS], "first": kinds, "resized": make_kinds(KINDS, WORKLOADS, resized=True)}
        places = {kind: Path(directory) / f"{kind}.txt" for kind in reviews}
        for kind, place in places.items():
            place.write_bytes(b"\n".join(reviews[kind]))
        for kind, place in places.items():
            ours_, theirs_ = _rates(theirs, kind, place, kinds[0])
            rows.append(
                BenchmarkRow(NAME, f"{kind}: cruise", ours_, "requests/s", f"VPA: {theirs_:,.0f}", ours_ / theirs_)
            )
            wanted = WANTED[kind]
            ratio = ours_ / theirs_
            rows.append(
                BenchmarkRow(NAME, f"{kind}: cruise over VPA", ratio, "times", f"wanted: {wanted:g}", ratio / wanted)
            )
    return rows


def _rates(theirs: WebhookProcess, kind: str, place: Path, review: bytes) -> tuple[float, float]:
    """Return medians of alternating rounds, each with a new server of cruise without cached answers."""
    ours_, theirs_ = [], []
    for _ in range(ROUNDS):
        with running("cruise", WORKLOADS, NODES) as ours:
            _check(ours, PATH, review)
            _check(theirs, VPA_PATH, review)
            if kind == "known":
                load(ours, place, CONNECTIONS, 1)
            ours_.append(load(ours, place, CONNECTIONS, SECONDS).per_second)
        theirs_.append(load(theirs, place, CONNECTIONS, SECONDS, VPA_PATH).per_second)
    if kind != "known" and max(ours_) * SECONDS > KINDS:
        raise RuntimeError(f"{KINDS} kinds are too few: some were asked about twice")
    return statistics.median(ours_), statistics.median(theirs_)


def _check(server: WebhookProcess, path: str, review: bytes) -> None:
    """Check that a pod is sized, because skipped pods take no time."""
    if b'"patch"' not in answer_to(server.port, path, review):
        raise RuntimeError(f"the pod is not patched at {path}")
