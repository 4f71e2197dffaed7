"""The inputs that two checkouts decide on, and the commands that they run."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.compare_decisions.random_clusters import RandomCluster, draw_cluster, requested
from benchmarks.compare_decisions.random_pods import Json
from benchmarks.compare_decisions.refused_cases import write_refused
from benchmarks.snapshot_generator import generate_cluster, write_snapshot, write_usage

# Every fifth cluster is drawn by the benchmarks' snapshot generator, every fiftieth of all clusters is large.
_USUAL_INTERVAL, _LARGE_INTERVAL = 5, 50
_LARGE_NODES = 100
_EXPLAINED_PODS, _MORE_PLANS = 3, 5
_SEED_DISTANCE = 10_000
# About a tenth of a second, and the same plan each time.
_WORK_UNITS = "1e8"
_NOW = ("--now", "2026-01-01T12:00:00Z")
_SETTINGS = (
    'max_age = "2h"',
    'look_ahead = "0s"',
    'new_workload_age = "0s"',
    'memory_limit_history = "0s"',
    'oom_cooldown = "0s"',
    'oom_reaction = "evict"',
    "max_evictions_per_node = 5",
    'excluded_namespaces = ["bank"]',
    "allow_extended_resources = true",
    'headroom = "shared-max"',
    'headroom = "joint-peak"',
)
CASES_FILE = "cases.json"
_SETTINGS_SHARE = 0.5
_INPUTS = "$INPUTS"
_SECONDS = re.compile(r'"seconds":[0-9.e+-]+')


@dataclass(frozen=True, slots=True)
class Case:
    """One command; `$INPUTS` stands for the directory of inputs in its arguments and output."""

    kind: str
    name: str
    arguments: tuple[str, ...]
    cluster: int | None = None


def write_inputs(directory: Path, clusters: int) -> None:
    """Write clusters, invalid inputs and the list of all cases."""
    directory.mkdir(parents=True, exist_ok=True)
    cases = [case for number in range(clusters) for case in _write_cluster_cases(directory, number)]
    for number, arguments in enumerate(write_refused(directory / "refused")):
        cases.append(Case("refused", f"refused-{number:03}", _abstract(arguments, directory)))
    (directory / CASES_FILE).write_text(json.dumps([asdict(case) for case in cases]))


def read_cases(directory: Path, clusters: int, traces: Sequence[Path]) -> list[Case]:
    """Return the cases of the traces, of the first clusters and of all invalid inputs, the longest first."""
    listed = json.loads((directory / CASES_FILE).read_text())
    cases = [Case(**one | {"arguments": tuple(one["arguments"])}) for one in listed]
    replays = [
        Case("backtest", f"backtest-{trace.name}", ("backtest", "--trace", str(trace.resolve()), "--format", "json"))
        for trace in traces
    ]
    return replays + [case for case in cases if case.cluster is None or case.cluster < clusters]


def get_arguments(case: Case, inputs: Path) -> list[str]:
    """Return the arguments of a case for the inputs in a directory."""
    return [argument.replace(_INPUTS, str(inputs)) for argument in case.arguments]


def normalize(text: str, inputs: Path, checkout: Path) -> str:
    """Return output without directories and durations."""
    return _SECONDS.sub('"seconds":0', text).replace(str(inputs), _INPUTS).replace(str(checkout), "$CHECKOUT")


def _abstract(arguments: Sequence[str], directory: Path) -> tuple[str, ...]:
    return tuple(argument.replace(str(directory), _INPUTS) for argument in arguments)


def _write_cluster_cases(directory: Path, number: int) -> Iterator[Case]:
    source = random.Random(f"commands {number}")
    name = f"{number:03}"

    def case(kind: str, *arguments: str, suffix: str = "") -> Case:
        return Case(kind, f"{kind.replace(' ', '-')}-{name}{suffix}", _abstract(arguments, directory), number)

    cluster = _generate_full_cluster(directory, number) if number % _USUAL_INTERVAL == 0 else draw_cluster(number)
    files = _write_cluster(directory, name, cluster, source)
    mode = _draw_mode(source)
    yield case("plan", "plan", *files, *mode, "--format", "json")
    yield case("plan table", "plan", *files, *mode)
    yield case("scan", "scan", *files, "--format", "json")
    metadata = [item["metadata"] for item in cluster.items if item["kind"] == "Pod"]
    pods = [f"{one['namespace']}/{one['name']}" for one in metadata]
    for index, pod in enumerate(source.sample(pods, min(len(pods), _EXPLAINED_PODS))):
        yield case("explain", "explain", pod, *files, *mode, "--format", "json", suffix=f"-{index}")
        yield case("explain text", "explain", pod, *files, *mode, suffix=f"-{index}")
    work = ("--work", _WORK_UNITS, "--seed", str(number), "--format", "json")
    yield case("pack fixed", "pack", *files, *work)
    yield case("pack rightsized", "pack", *files, "--sizes", "rightsized", *work)
    # More plans, which take milliseconds, because ties are rare.
    for index in range(1, _MORE_PLANS + 1):
        seed = number + index * _SEED_DISTANCE
        files = _write_cluster(directory, f"{name}-{index}", draw_cluster(seed), source)
        yield case("plan", "plan", *files, *_draw_mode(source), "--format", "json", suffix=f"-{index}")


def _write_cluster(directory: Path, name: str, cluster: RandomCluster, source: random.Random) -> list[str]:
    """Write a cluster and random settings; return the options that name the files, and for some clusters the time."""
    snapshot, usage = directory / f"cluster-{name}.json", directory / f"usage-{name}.json"
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster.items}))
    document = {"apiVersion": "cruise.io/v1", "kind": "UsageStatistics", "items": cluster.usage}
    usage.write_text(json.dumps(document))
    config = directory / f"settings-{name}.toml"
    config.write_text(f"{source.choice(_SETTINGS)}\n" if source.random() < _SETTINGS_SHARE else "")
    files = ["--snapshot", str(snapshot), "--usage", str(usage), "--config", str(config)]
    return [*files, *source.choice([_NOW, ()])]


def _draw_mode(source: random.Random) -> tuple[str, str]:
    return "--mode", source.choice(["full", "full", "full", "resize", "initial", "observe"])


def _generate_full_cluster(directory: Path, number: int) -> RandomCluster:
    """Return a cluster of the benchmarks' generator, with little free capacity and with pending pods."""
    source = random.Random(number)
    nodes = _LARGE_NODES if number % _LARGE_INTERVAL == 0 else source.randint(2, 8)
    generated, scratch = generate_cluster(nodes, number), directory / "scratch.json"
    write_snapshot(generated, scratch, pretty=False)
    items: list[Json] = json.loads(scratch.read_text())["items"]
    write_usage(generated, scratch)
    usage: list[Json] = json.loads(scratch.read_text())["items"]
    scratch.unlink()
    pending_share = source.choice([0.01, 0.03, 0.1])
    totals = {item["metadata"]["name"]: [0, 0] for item in items if item["kind"] == "Node"}
    for item in items:
        if item["kind"] != "Pod":
            continue
        if source.random() < pending_share:
            del item["spec"]["nodeName"]
            item["status"] = {"phase": "Pending"}
            continue
        for resource, amount in enumerate(requested(item)):
            totals[item["spec"]["nodeName"]][resource] += amount
    for item in items[: len(totals)]:
        cpu, memory = totals[item["metadata"]["name"]]
        amounts = {"cpu": f"{int(cpu * source.uniform(1, 1.06))}m", "memory": str(int(memory * source.uniform(1, 1.3)))}
        item["status"]["allocatable"] |= amounts
    return RandomCluster(items, usage)
