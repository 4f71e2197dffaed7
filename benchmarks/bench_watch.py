"""A watched cluster of 150,000 pods: its memory, and the cost of a snapshot."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import msgspec

from benchmarks.table import BenchmarkRow
from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.kinds import ALL_KINDS, PODS
from cruise.domain.cluster import ClusterSnapshot
from cruise.kube_json.reading.json_list import ItemListReader
from cruise.kube_json.reading.stream import ChangedEvent, StreamDecoder
from cruise.kube_json.wire.object_json import AnyObject
from cruise.kube_json.wire.pod_json import PodObject

NAME = "watch"
NODES = 5_000
# After some time every pod has its own sizes.
_SIZES = re.compile(rb'"(requests|allocatedResources)":\{"cpu":"\w+","memory":"\w+"\}')
_numbers = count()
_CHANGES = 2_000
_KINDS = {str(kind.shape.__struct_config__.tag): kind for kind in ALL_KINDS}
_documents = msgspec.json.Decoder(list[AnyObject])
_CHUNK_BYTES = 1 << 21
_GENERATE = """
import sys
from pathlib import Path
from benchmarks.snapshot_generator import (generate_cluster, write_snapshot)
write_snapshot(generate_cluster(int(sys.argv[1])), Path(sys.argv[2]), pretty=False)
"""


def run() -> list[BenchmarkRow]:
    """Measure the memory that this process adds, and CPU seconds."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        path = Path(directory) / "cluster.json"
        # Apart, so that none of its memory is used again here.
        subprocess.run([sys.executable, "-c", _GENERATE, str(NODES), str(path)], check=True)
        rows: list[BenchmarkRow] = []
        for which in _CHANGES_OF_TEXT:
            # One would use again the memory that another gave back.
            command = [sys.executable, "-m", "benchmarks.bench_watch", str(path), which]
            answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            rows += msgspec.json.decode(answer.stdout, type=list[BenchmarkRow])
        return rows


def _measure(path: Path, which: str) -> Iterator[BenchmarkRow]:
    before, started = resident_mib(), time.process_time()
    cache = ClusterCache()
    objects = _fill(cache, path, _CHANGES_OF_TEXT[which])
    yield BenchmarkRow(NAME, f"list {objects:,} objects, {which}", time.process_time() - started, "s")
    seconds, snapshot = _timed(cache.snapshot)
    yield BenchmarkRow(NAME, f"memory of {len(snapshot.pods):,} pods, {which}", resident_mib() - before, "MiB")
    yield BenchmarkRow(NAME, f"first snapshot, {which}", seconds, "s")
    yield BenchmarkRow(NAME, f"snapshot without changes, {which}", _timed(cache.snapshot)[0], "s")
    started = time.process_time()
    _change_pods(cache, snapshot)
    yield BenchmarkRow(NAME, f"{_CHANGES:,} events, {which}", time.process_time() - started, "s")
    yield BenchmarkRow(NAME, f"snapshot after them, {which}", _timed(cache.snapshot)[0], "s")


def _fill(cache: ClusterCache, path: Path, change: Callable[[bytes], bytes]) -> int:
    objects = 0
    with path.open("rb") as file:
        for _, decoded in ItemListReader(iter(lambda: file.read(_CHUNK_BYTES), b"")).read_runs(
            lambda text: _documents.decode(change(bytes(text)))
        ):
            for item in decoded or ():
                cache.get_store(_KINDS[str(item.__struct_config__.tag)]).put(item, "1")
                objects += 1
    return objects


def _change_pods(cache: ClusterCache, snapshot: ClusterSnapshot) -> None:
    decoder = StreamDecoder(PodObject)
    pod_store = cache.get_store(PODS)
    for pod in snapshot.pods[:: len(snapshot.pods) // _CHANGES]:
        metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "resourceVersion": "2"}
        containers = [{"name": one.name, "resources": {"requests": {"cpu": "1"}}} for one in pod.containers]
        spec = {"nodeName": pod.node, "containers": containers}
        line = {"type": "MODIFIED", "object": {"kind": "Pod", "metadata": metadata, "spec": spec}}
        event = decoder.decode_event(msgspec.json.encode(line))
        assert isinstance(event, ChangedEvent)
        pod_store.put(event.item, event.version)


def _sized_apart(text: bytes) -> bytes:
    def size(found: re.Match[bytes]) -> bytes:
        number = next(_numbers)
        return b'"%s":{"cpu":"%dm","memory":"%dMi"}' % (found.group(1), 10 + number % 3989, 16 + number % 7919)

    return _SIZES.sub(size, text)


def _timed(work: Callable[[], ClusterSnapshot]) -> tuple[float, ClusterSnapshot]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def resident_mib() -> float:
    """Return the present resident set of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS line")


_CHANGES_OF_TEXT: Mapping[str, Callable[[bytes], bytes]] = {"as created": bytes, "each pod resized": _sized_apart}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(list(_measure(Path(sys.argv[1]), sys.argv[2]))))
