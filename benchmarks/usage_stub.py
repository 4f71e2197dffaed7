"""Stands in for a Prometheus with very many containers, in a separate process, with answers encoded in advance.

Every container uses 100 millicores without pressure and constant memory; ids and names are as long as real ones.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection

from benchmarks.apart import serve_in_process
from benchmarks.snapshot_generator import GeneratedCluster, generate_cluster
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering

STEP = 60
# The initial value of counters, so that they never reset.
BEGINNING = 1_700_000_000
QUERY = re.compile(r"(container_\w+)\{.*pod=~\"(.*)\"\}\)?$")


@contextmanager
def running_stub(nodes: int) -> Iterator[str]:
    """Run the stand-in for `generate_cluster(nodes)`; yield its address."""
    with serve_in_process(_serve, nodes) as address:
        yield address


def _serve(nodes: int, pipe: Connection) -> None:
    answers = StubAnswers(generate_cluster(nodes))
    with answering(answers.respond) as address:
        pipe.send(address)
        pipe.recv()


class StubAnswers:
    """The answers by metric and selection, with placeholders for times and counters."""

    def __init__(self, cluster: GeneratedCluster) -> None:
        self._pods = [
            (workload.namespace, pod, node, tuple(shape.name for shape in workload.shapes))
            for workload in cluster.workloads
            for pod, node in workload.pods
        ]
        self._encoded = cache(self._encode)

    def respond(self, request: ReceivedHttpRequest) -> HttpAnswer:
        found = QUERY.search(request.form["query"])
        assert found is not None
        times = range(int(request.form["start"]), int(request.form["end"]) + 1, STEP)
        body = self._encoded(found.group(1), found.group(2), len(times))
        for place, at in enumerate(times):
            body = body.replace(b"~%02d" % place, b"%d" % at)
            body = body.replace(b"^%02d" % place, b"%d" % ((at - BEGINNING) // 10))
        return HttpAnswer(body=body)

    def _encode(self, metric: str, expression: str, steps: int) -> bytes:
        selects = re.compile(expression).fullmatch
        rows = []
        for number, (namespace, pod, node, containers) in enumerate(self._pods):
            if not selects(pod):
                continue
            for container in containers:
                labels = (
                    f'"container":"{container}","id":"/kubepods.slice/kubepods-burstable.slice/'
                    f"kubepods-burstable-pod{number:032x}.slice/cri-containerd-{hash((number, container)) % 2**64:064x}"
                    f'.scope","namespace":"{namespace}","node":"{node}","pod":"{pod}"'
                )
                rows.append(f'{{"metric":{{{labels}}},"values":[{_values(metric, number, steps)}]}}')
        return ('{"status":"success","data":{"resultType":"matrix","result":[' + ",".join(rows) + "]}}").encode()


def _values(metric: str, number: int, steps: int) -> str:
    if metric.endswith("bytes"):
        return ",".join(f'[~{place:02d},"{134_217_728 + 4096 * number}"]' for place in range(steps))
    if "pressure" in metric:
        return ",".join(f'[~{place:02d},"{number % 1000}.{number % 997:03d}"]' for place in range(steps))
    return ",".join(f'[~{place:02d},"^{place:02d}.{number % 997:03d}418"]' for place in range(steps))
