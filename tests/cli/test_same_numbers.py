"""A quantity has one name and one value in scan, plan, explain, export and pack.

`target` is what a container should have, `planned` what a pass writes, `reclaimable` requested − target, net. Sizes of
pod templates (export) are those of new pods: no less than any target.
"""

import json
import random
import re
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.snapshot_generator import generate_cluster, write_snapshot, write_usage
from cruise.cli.program import main
from cruise.domain.resources import parse_cpu_millicores, parse_memory_bytes
from cruise.interfaces.text import format_cpu
from scripts.site import ROOT

EXAMPLE = ROOT / "docs/example/cluster.json", ROOT / "docs/example/usage.json"


@pytest.fixture(params=["example", "1", "2", "3"])
def files(request, tmp_path) -> tuple[str, str]:
    """The files of the quick start, or of a random cluster with a pod that is pending."""
    if request.param == "example":
        return str(EXAMPLE[0]), str(EXAMPLE[1])
    seed = int(request.param)
    cluster = generate_cluster(2, seed, pods_per_node=12)
    snapshot, usage = tmp_path / "cluster.json", tmp_path / "usage.json"
    write_snapshot(cluster, snapshot)
    write_usage(cluster, usage)
    document = json.loads(snapshot.read_text())
    _crowd(document, random.Random(seed))
    snapshot.write_text(json.dumps(document))
    return str(snapshot), str(usage)


def _crowd(document, draw: random.Random) -> None:
    """Let nodes have next to nothing free, and add a pod that finds no room."""
    pods = [item for item in document["items"] if item["kind"] == "Pod"]
    requested: dict[str, int] = defaultdict(int)
    for pod in pods:
        requested[pod["spec"]["nodeName"]] += requests_of(pod)[0]
    for node in document["items"]:
        if node["kind"] == "Node":
            node["status"]["allocatable"]["cpu"] = f"{requested[node['metadata']['name']] + draw.randint(0, 200)}m"
    owned = next(pod for pod in pods if pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet")
    pending = json.loads(json.dumps(owned))
    del pending["spec"]["nodeName"]
    pending["metadata"] |= {"name": "pending-1", "uid": "pending-1"}
    pending["spec"]["containers"] = pending["spec"]["containers"][:1]
    pending["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": f"{draw.choice([300, 900, 2500])}m", "memory": "64Mi"}
    }
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pending["status"] = {"phase": "Pending", "conditions": [condition]}
    document["items"].append(pending)


def containers_of(pod):
    """The containers that are sized: the main ones and the sidecars."""
    sidecars = [one for one in pod["spec"].get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    return [*pod["spec"]["containers"], *sidecars]


def amounts(requests) -> tuple[int, int]:
    return parse_cpu_millicores(requests.get("cpu", "0")), parse_memory_bytes(requests.get("memory", "0"))


def requests_of(pod) -> tuple[int, int]:
    return total(amounts(one["resources"].get("requests", {})) for one in containers_of(pod))


def total(parts) -> tuple[int, int]:
    cpu = memory = 0
    for one_cpu, one_memory in parts:
        cpu, memory = cpu + one_cpu, memory + one_memory
    return cpu, memory


def pair(document) -> tuple[int, int]:
    return document["cpuMillicores"], document["memoryBytes"]


@pytest.fixture
def run(capfd, files):
    def printed(command: str, *options: str) -> str:
        snapshot, usage = files
        assert main([command, "--snapshot", snapshot, "--usage", usage, *options]) == 0
        return str(capfd.readouterr().out)

    return printed


@pytest.fixture
def answer(run):
    return lambda command, *options: json.loads(run(command, "--format", "json", *options))


@pytest.fixture
def pods(files):
    items = json.loads(Path(files[0]).read_text())["items"]
    return {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in items if item["kind"] == "Pod"}


@pytest.fixture
def nodes(answer):
    return answer("plan")["nodes"]


@pytest.fixture
def targets(nodes):
    return {(one["namespace"], one["pod"], one["container"]): pair(one) for node in nodes for one in node["targets"]}


@pytest.fixture
def planned(nodes, pods):
    """What each container of a bound pod requests once the plan is written."""
    found = {
        (*name, one["name"]): amounts(one["resources"].get("requests", {}))
        for name, pod in pods.items()
        if "nodeName" in pod["spec"]
        for one in containers_of(pod)
    }
    for node in nodes:
        for resize in node["resize"]:
            for one in (*resize["patch"]["spec"]["containers"], *resize["patch"]["spec"].get("initContainers", ())):
                found[resize["namespace"], resize["pod"], one["name"]] = amounts(one["resources"]["requests"])
    return found


def test_scan_counts_the_targets_and_the_writes_of_plan(answer, pods, nodes, targets, planned):
    assert not any(node["evict"] for node in nodes)
    waste = answer("scan")["waste"]
    bound = [pod for pod in pods.values() if "nodeName" in pod["spec"]]
    sized = {key: targets.get(key, size) for key, size in planned.items()}
    assert pair(waste["totals"]["requested"]) == total(requests_of(pod) for pod in bound)
    assert pair(waste["totals"]["recommended"]) == total(sized.values())
    assert pair(waste["totals"]["planned"]) == total(planned.values())
    for one in (waste["totals"], *waste["workloads"]):
        freed = [now - target for now, target in zip(pair(one["requested"]), pair(one["recommended"]), strict=True)]
        assert pair(one["reclaimable"]) == tuple(freed)
    for key in ("requested", "recommended", "planned", "reclaimable"):
        assert total(pair(one[key]) for one in waste["workloads"]) == pair(waste["totals"][key])


def test_explain_has_the_target_of_plan_and_what_it_writes(answer, targets, planned):
    for namespace, pod in sorted({key[:2] for key in targets})[:12]:
        for one in answer("explain", f"{namespace}/{pod}")["containers"]:
            key = (namespace, pod, one["container"])
            for place, name in enumerate(("cpuMillicores", "memoryBytes")):
                steps = one[name]
                assert steps["final"] == targets[key][place]
                written = planned[key][place]
                assert written in (steps.get("written", steps["final"]), steps["current"])
                # There is no quota in these files.
                assert "quota" not in (steps["lower"]["source"], steps["upper"]["source"])


@pytest.mark.parametrize("width", [80, 160])
def test_tables_have_the_same_sums(run, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    plan, scan = " ".join(run("plan").split()), " ".join(run("scan").split())
    assert all("may write more than the target" in one for one in (plan, scan))
    rows = {
        name: re.findall(rf"\b{name} (\S+) \S+% (\S+) \S+%", scan)[0]
        for name in ("requested", "target", "planned", "reclaimable")
    }
    assert f"sum up to {rows['target'][0]} cores and {rows['target'][1]} GiB" in plan
    arrows = [f"{before} → {after}" for before, after in zip(rows["requested"], rows["planned"], strict=True)]
    assert all(one in plan for one in arrows)


def test_a_nodes_containers_are_shown_as_the_plan_writes_them(run, nodes, pods, planned, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    for node in nodes:
        shown: dict[tuple[str, ...], str] = {}
        for line in run("plan", "--node", node["node"]).partition("Containers on")[2].splitlines()[1:]:
            if line and not line.startswith(" "):
                pod = tuple(line.split()[0].split("/"))
            elif line.split()[:1] not in ([], ["target"]):
                shown[(*pod, line.split()[0])] = " ".join(line.split())
        held = {(one["namespace"], one["pod"]) for one in node["hold"]}
        assert held <= {key[:2] for key in shown}
        for key, line in shown.items():
            resources = {one["name"]: one["resources"] for one in containers_of(pods[key[:2]])}[key[2]]
            now, written = amounts(resources.get("requests", {}))[0], planned[key][0]
            expected = format_cpu(now) if now == written else f"{format_cpu(now)} → {format_cpu(written)}"
            assert line.startswith(f"{key[2]} {expected} ")
            assert "→" not in line or key[:2] not in held


def test_export_gives_templates_no_less_than_any_target(answer, pods, targets):
    exported = answer("export")
    given = {
        (one["namespace"], one["workload"].partition("/")[2], container["container"]): container
        for one in exported["workloads"]
        for container in one["containers"]
    }
    compared = 0
    for (namespace, pod, name), target in targets.items():
        owner = pods[namespace, pod]["metadata"]["ownerReferences"][0]
        workload = owner["name"].rpartition("-")[0] if owner["kind"] == "ReplicaSet" else owner["name"]
        if (namespace, workload, name) in given:
            template = amounts(given[namespace, workload, name]["after"]["requests"])
            assert template[0] >= target[0]
            assert template[1] >= target[1]
            compared += 1
    assert compared
    for one in exported["workloads"]:
        freed = (
            (before - after) * one["pods"]
            for before, after in zip(
                total(amounts(container["before"]["requests"]) for container in one["containers"]),
                total(amounts(container["after"]["requests"]) for container in one["containers"]),
                strict=True,
            )
        )
        assert pair(one["freed"]) == tuple(freed)
    assert pair(exported["freed"]) == total(pair(one["freed"]) for one in exported["workloads"])


def test_pack_sizes_pods_with_usage_and_places_what_scan_finds_capacity_for(answer):
    pending = {(one["namespace"], one["pod"]): one for one in answer("scan")["pending"]}
    packed = answer("pack")
    assert packed["sizes"] == "rightsized"
    assert answer("pack", "--sizes", "fixed", "--time-limit", "0")["sizes"] == "fixed"
    assert pending
    placed = {(one["namespace"], one["pod"]) for one in packed["placed"]}
    assert {name for name, one in pending.items() if one["bestNode"] is not None} <= placed
    if not packed["moves"] and not packed["preempted"]:
        assert placed <= {name for name, one in pending.items() if one["bestNode"] is not None}


def test_pack_resizes_to_the_targets_of_plan(capfd):
    """Where no other pod shares the node's headroom, as in the example."""
    files = ["--snapshot", str(EXAMPLE[0]), "--usage", str(EXAMPLE[1]), "--format", "json"]
    assert main(["plan", *files]) == 0
    [node] = json.loads(capfd.readouterr().out)["nodes"]
    targets = {(one["namespace"], one["pod"]): pair(one) for one in node["targets"]}
    assert main(["pack", *files]) == 0
    resizes = json.loads(capfd.readouterr().out)["resizes"]
    assert resizes
    assert all(pair(one) == targets[one["namespace"], one["pod"]] for one in resizes)


def test_options_that_would_be_ignored_are_rejected(capfd):
    files = ["--snapshot", str(EXAMPLE[0]), "--usage", str(EXAMPLE[1])]
    for arguments, named in (
        (["scan", *files, "--history", "1d"], "--history"),
        (["export", *files, "--history", "7d"], "--history"),
        (["export", *files, "--format", "patches", "--price-gib-hour", "1"], "prices"),
        (["pack", *files[:2], "--now", "2026-01-05T12:00:00Z"], "--now"),
    ):
        assert main(arguments) == 2
        error = capfd.readouterr().err
        assert named in error
        assert error.count("\n") == 1
