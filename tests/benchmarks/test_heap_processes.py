"""Real JVM, Node.js and Go processes have the heap that cruise reads from the pod, and use no more memory.

The runtimes are not installed for the tests: a JDK is too large. What a machine lacks is skipped.
"""

import json
import os
import subprocess

import msgspec
import pytest

from benchmarks.heap_processes import PROGRAMS, compile_go, compile_java, find_program, measure_peak_bytes
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.objects.heaps import HeapBoundReader
from cruise.kube_json.wire.pod_json import ContainerSpec

pytestmark = pytest.mark.server
needs_java = pytest.mark.skipif(find_program("javac") is None, reason="no JDK on this machine")
needs_node = pytest.mark.skipif(find_program("node") is None, reason="no Node.js on this machine")
needs_go = pytest.mark.skipif(find_program("go") is None, reason="no Go on this machine")
LIMIT_MIB = 1024


def read(env=None, command=()):
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    document = {
        "name": "app",
        "env": variables,
        "command": list(command),
        "resources": {"limits": {"memory": f"{LIMIT_MIB}Mi"}},
    }
    bound = HeapBoundReader().read(msgspec.convert(document, ContainerSpec))
    assert bound is not None
    return bound


def run(command, env) -> str:
    whole = os.environ | env
    return subprocess.run(command, env=whole, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout.decode()


@needs_java
@pytest.mark.parametrize(
    ("env", "options"),
    [
        ({}, ["-Xmx200m"]),
        ({}, ["-Xmx200m", "-Xmx300M"]),
        ({"JAVA_TOOL_OPTIONS": "-Xmx200m"}, []),
        ({"JAVA_TOOL_OPTIONS": "-Xmx200m"}, ["-Xmx300m"]),
        ({"JAVA_TOOL_OPTIONS": "-Xmx200m", "JDK_JAVA_OPTIONS": "-Xmx300m"}, []),
        ({"JDK_JAVA_OPTIONS": "-Xmx200m"}, ["-Xmx300m"]),
        ({"_JAVA_OPTIONS": "-Xmx400m", "JAVA_TOOL_OPTIONS": "-Xmx200m"}, ["-Xmx300m"]),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxHeapSize=314572800"}, []),
        *[({"JAVA_TOOL_OPTIONS": f"-XX:MaxRAM={size}m"}, []) for size in (100, 200, 260, 300, 512, 4096)],
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=2g -XX:MaxRAMPercentage=75.0"}, []),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=200m -XX:MinRAMPercentage=80"}, []),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=2g -XX:MaxRAMFraction=2"}, []),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=2g -XX:MaxRAMFraction=2 -XX:MaxRAMPercentage=30"}, []),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=1g -Xms600m"}, []),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=1g -XX:InitialHeapSize=600m -Xmx700m"}, []),
    ],
)
def test_the_jvm_has_the_heap_that_is_read(env, options):
    printed = run(["java", *options, "-XX:+PrintFlagsFinal", "-version"], env)
    [line] = [line for line in printed.splitlines() if line.split()[1:2] == ["MaxHeapSize"]]
    found = read(env, ["java", *options, "Main"]).compute_heap(LIMIT_MIB * MEBIBYTE, 0)
    # HotSpot rounds up to its alignment.
    assert found <= int(line.split()[3]) <= found + 2 * MEBIBYTE


@needs_java
@pytest.mark.parametrize("collector", ["Serial", "G1"])
def test_a_jvm_with_a_full_heap_takes_no_more_than_is_counted(collector, tmp_path):
    command = ["java", "-Xmx192m", f"-XX:+Use{collector}GC", "-cp", str(compile_java(tmp_path)), "Fill"]
    bound = read(command=command)
    peak = measure_peak_bytes([*command, "0.97", "1", "40"])
    assert bound.compute_heap(0, 0) < peak <= bound.compute_memory(0, 0)


@needs_node
def test_node_has_the_old_space_that_is_read():
    for env, options in (
        ({"NODE_OPTIONS": "--max-old-space-size=300"}, []),
        ({"NODE_OPTIONS": "--max-old-space-size=300"}, ["--max-old-space-size=200"]),
        ({}, ["--max_old_space_size=200"]),
    ):
        printed = run(["node", *options, "-p", "JSON.stringify(require('v8').getHeapStatistics())"], env)
        limit = json.loads(printed)["heap_size_limit"]
        # Beside the old space it has the young generation.
        assert limit - 64 * MEBIBYTE <= read(env, ["node", *options]).compute_heap(0, 0) <= limit


@needs_node
def test_node_with_a_full_heap_takes_no_more_than_is_counted():
    command = ["node", "--max-old-space-size=128", str(PROGRAMS / "fill.js")]
    bound = read(command=command)
    peak = measure_peak_bytes([*command, "2", "0"])
    assert bound.compute_heap(0, 0) < peak <= bound.compute_memory(0, 0)


@needs_go
def test_go_takes_its_limit_only_if_garbage_collection_has_no_pace_of_its_own(tmp_path):
    program, env = str(compile_go(tmp_path)), {"GOMEMLIMIT": "128MiB"}
    bound = read(env)
    assert measure_peak_bytes([program, "0.9", "1"], env) <= bound.compute_memory(0, 0)
    filled, paced = (measure_peak_bytes([program, "0.1", "2"], env | {"GOGC": pace}) for pace in ("off", "100"))
    assert paced < filled <= bound.compute_memory(0, 0)
    assert (read(env | {"GOGC": "off"}).holds_request, bound.holds_request) == (True, False)
