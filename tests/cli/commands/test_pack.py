import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cruise.cli import main
from tests.builders import (
    Json,
    make_container_json,
    make_deployment_json,
    make_list_json,
    make_namespace_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_usage_item_json,
    make_usage_json,
)
from tests.cli.terminal import completions, run_on_terminal
from tests.cli.test_cli import alone, error_line, run

__all__ = ["alone"]

TIERS = {"placed", "moves", "preempted", "resizes", "unplaced", "byPriority"}


def pod(name, node=None, cpu="2", priority=0, **spec):
    """A pod of Deployment web, bound to a node or pending."""
    return make_pod_json(
        name, node=node, containers=[make_container_json(cpu=cpu, memory="1Gi")], spec={"priority": priority, **spec}
    )


OWNERS = (make_deployment_json(), make_replica_set_json(), make_namespace_json())
# The two that wait have room only where one of the running ones makes it.
CROWDED = (
    make_node_json("n1", cpu="4"),
    make_node_json("n2", cpu="4"),
    pod("web-1", "n1"),
    pod("web-2", "n2"),
    pod("late-1", cpu="3", priority=100),
)


@pytest.fixture
def packed(tmp_path, capsys):
    """Runs `cruise pack` on some objects as JSON; returns the document."""

    def pack(*objects, owners=OWNERS, options=("--time-limit", "0")):
        file = write(tmp_path, *objects, owners=owners)
        assert main(["pack", "--snapshot", file, "--format", "json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    return pack


def write(directory, *objects, owners=OWNERS) -> str:
    file = directory / "cluster.json"
    file.write_text(json.dumps(make_list_json(*objects, *owners)))
    return str(file)


def places(document) -> dict[str, str]:
    return {one["pod"]: one["node"] for one in document["placed"]}


# ---- what it answers ----


def test_a_plan_frees_capacity_and_is_proved(packed):
    document = packed(*CROWDED, options=("--time-limit", "inf"))
    assert document["status"] == "optimal"
    assert document["sizes"] == "fixed"
    assert document["seconds"] >= 0
    [move] = document["moves"]
    assert {move["from"], move["to"]} == {"n1", "n2"}
    assert places(document) == {"late-1": move["from"]}
    assert document["byPriority"] == [
        {"priority": 100, "placed": 1, "bound": 1},
        {"priority": 0, "placed": 2, "bound": 2},
    ]


def nominated(name: str, node: str, priority: int = 0, cpu: str = "3") -> Json:
    one: Json = pod(name, cpu=cpu, priority=priority)
    one["status"]["nominatedNodeName"] = node
    return one


def test_capacity_is_reserved_for_a_nominated_pod_except_from_higher_priorities(packed):
    node = make_node_json("n1", cpu="4")
    found = packed(node, nominated("web-1", "n1"), pod("late-1", cpu="3", priority=100))
    assert places(found) == {"late-1": "n1"}
    assert [one["pod"] for one in found["unplaced"]] == ["web-1"]
    # What it leaves free is enough for both.
    found = packed(node, nominated("web-1", "n1", cpu="1"), pod("late-1", cpu="3", priority=100))
    assert places(found) == {"late-1": "n1", "web-1": "n1"}
    for priority in (0, -1):
        found = packed(node, nominated("web-1", "n1"), pod("late-1", cpu="3", priority=priority))
        assert places(found) == {"web-1": "n1"}


def test_capacity_that_is_not_free_yet_is_reserved(packed):
    ending = pod("old-1", "n1", cpu="3")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = packed(make_node_json("n1", cpu="4"), ending, nominated("web-1", "n1"), pod("late-1", cpu="3", priority=9))
    assert places(found) == {}


@pytest.mark.beyond_core
def test_within_budgets_it_evicts_what_serve_may_and_says_what_further_rounds_do(packed, tmp_path):
    options = ("--time-limit", "inf", "--within-budgets")
    document = packed(*CROWDED, options=options)
    # The pod that waits is one of web that does not serve, so no other of web may go.
    assert (document["placed"], document["moves"]) == ([], [])
    assert document["remainingRounds"]["withLargerBudgets"] == {"placed": 1, "evictions": 1, "needs": {}}
    config = tmp_path / "cruise.toml"
    config.write_text("max_evictions_per_workload = 2\n")
    document = packed(*CROWDED, options=(*options, "--config", str(config)))
    assert (len(document["moves"]), document["remainingRounds"]) == (1, None)


def test_within_budgets_is_not_for_consolidation(tmp_path, capsys):
    file = write(tmp_path, *CROWDED)
    assert main(["pack", "--snapshot", file, "--within-budgets", "--consolidate"]) == 2
    assert "--max-evictions N" in capsys.readouterr().err


@pytest.mark.beyond_core
def test_work_instead_of_time_gives_the_same_plan_again(packed):
    first, second = (packed(*CROWDED, options=("--work", "1e7", "--seed", "3")) for _ in range(2))
    assert {key: first[key] for key in TIERS} == {key: second[key] for key in TIERS}


def test_a_lower_priority_is_preempted_if_nothing_else_frees_capacity(packed):
    document = packed(make_node_json("n1", cpu="4"), pod("low", "n1", cpu="3"), pod("high", cpu="3", priority=10))
    assert document["preempted"] == [{"namespace": "shop", "pod": "low", "from": "n1"}]
    assert places(document) == {"high": "n1"}


def test_zero_pending_is_already_optimal(packed):
    document = packed(make_node_json(), pod("web-1", "n1"))
    assert document["status"] == "already-optimal"
    assert [document[key] for key in ("placed", "moves", "preempted", "resizes", "unplaced")] == [[]] * 5


def test_zero_nodes_leave_every_pod_with_its_reason(packed, capsys, tmp_path):
    document = packed(pod("web-1"))
    assert [one["pod"] for one in document["unplaced"]] == ["web-1"]
    assert document["unplaced"][0]["blockedBy"] != []
    assert main(["pack", "--snapshot", write(tmp_path, pod("web-1"))]) == 0
    assert "0 of 1 pending pod placed." in capsys.readouterr().out


def test_an_empty_list_is_an_answer_too(packed):
    document = packed(owners=())
    assert document["status"] == "already-optimal"
    assert document["byPriority"] == []


def test_a_missing_replica_set_is_taken_from_its_pods(packed):
    document = packed(*CROWDED, owners=())
    # Any kind may be missing from a snapshot; the pods themselves name their owner.
    assert places(document).keys() == {"late-1"}
    assert len(document["moves"]) == 1


def test_an_unknown_topology_key_keeps_its_pod_pending(packed):
    spread = {
        "topologyKey": "example.com/rack",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    document = packed(make_node_json(), pod("web-1", topologySpreadConstraints=[spread]))
    [unplaced] = document["unplaced"]
    assert unplaced["pod"] == "web-1"
    assert unplaced["blockedBy"] != []


def test_contradicting_affinity_keeps_its_pod_pending(packed):
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    both = {"podAffinity": rule, "podAntiAffinity": rule}
    document = packed(make_node_json(), pod("web-1", "n1", cpu="1"), pod("web-2", cpu="1", affinity=both))
    [unplaced] = document["unplaced"]
    assert unplaced["pod"] == "web-2"
    assert unplaced["blockedBy"] != []


def test_without_time_the_answer_is_quick_and_says_so(tmp_path, capsys):
    file = write(tmp_path, *CROWDED)
    assert main(["pack", "--snapshot", file, "--time-limit", "0"]) == 0
    assert "no time to search: answered by the quick method" in capsys.readouterr().out
    assert main(["pack", "--snapshot", file, "--time-limit", "0", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert places(json.loads(out)) == {"late-1": "n1"} or places(json.loads(out)) == {"late-1": "n2"}
    assert err.startswith("cruise: note: no time to search: answered by the quick method\n")


def test_gzip_and_standard_input_are_read(tmp_path):
    document = json.dumps(make_list_json(*CROWDED, *OWNERS)).encode()
    done = subprocess.run(
        [sys.executable, "-m", "cruise", "pack", "--snapshot", "-", "--format", "json", "--time-limit", "0"],
        input=gzip.compress(document),
        capture_output=True,
        check=True,
    )
    assert places(json.loads(done.stdout)).keys() == {"late-1"}


# ---- sizes ----


def test_rightsized_needs_usage(capsys, tmp_path):
    file = write(tmp_path, *CROWDED)
    assert "--sizes rightsized needs --usage FILE" in error_line(
        capsys, "pack", "--snapshot", file, "--sizes", "rightsized"
    )


@pytest.mark.beyond_core
def test_rightsized_shrinks_before_any_move(packed, tmp_path):
    usage = tmp_path / "usage.json"
    usage.write_text(json.dumps(make_usage_json(make_usage_item_json(None, cpu_base=300, cpu_peak=500))))
    options = ("--sizes", "rightsized", "--usage", str(usage), "--time-limit", "inf")
    document = packed(*CROWDED, options=options)
    assert document["sizes"] == "rightsized"
    assert places(document).keys() == {"late-1"}
    assert document["moves"] == document["preempted"] == []
    assert [one["cpuMillicores"] < 3000 for one in document["resizes"]] == [True] * len(document["resizes"])
    assert document["resizes"] != []


# ---- what it refuses ----


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--time-limit", "-1"], "--time-limit: -1 is not a number of seconds"),
        (["--time-limit", "nan"], "--time-limit: nan is not a number of seconds"),
        (["--time-limit", "9", "--work", "1e9"], "--time-limit and --work both end the search; write one of them"),
        (["--time-limit", "soon"], "invalid value for '--time-limit'"),
        (["--sizes", "peak"], "'peak' is not one of"),
        (["--seed", "-3"], "invalid value for '--seed'"),
        (["--now", "yesterday"], '--now: "yesterday" is not a time'),
        (["--format", "yaml"], "'yaml' is not one of"),
        (["--usage", "/nowhere/usage.json"], "/nowhere/usage.json: no such file"),
        (["--config", "/nowhere/cruise.toml"], "/nowhere/cruise.toml"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(capsys, tmp_path, options, expected):
    assert expected in error_line(capsys, "pack", "--snapshot", write(tmp_path, *CROWDED), *options)


def test_a_missing_snapshot_is_one_line_and_exit_2(capsys):
    assert "missing option '--snapshot'; see cruise pack --help" in error_line(capsys, "pack")
    assert "no such file" in error_line(capsys, "pack", "--snapshot", "/nowhere.json")


@pytest.mark.parametrize("text", ["", "no JSON", '{"kind":"List","items":[', "[1,2]"])
def test_a_damaged_snapshot_is_one_line_and_exit_2(capsys, tmp_path, text):
    file = tmp_path / "broken.json"
    file.write_text(text)
    assert error_line(capsys, "pack", "--snapshot", str(file)).startswith(str(file))


def test_damaged_usage_is_one_line_and_exit_2(capsys, tmp_path):
    usage = tmp_path / "usage.json"
    usage.write_text('{"apiVersion":"cruise.io/v1","kind":"UsageStatistics","items":[{"namespace":1}]}')
    line = error_line(capsys, "pack", "--snapshot", write(tmp_path, *CROWDED), "--usage", str(usage))
    assert line.startswith(str(usage))


def test_negative_capacity_is_one_line_that_names_the_node(capsys, tmp_path):
    line = error_line(capsys, "pack", "--snapshot", write(tmp_path, make_node_json("n7", cpu="-4")))
    assert "n7" in line


def test_a_negative_request_is_one_line_that_names_the_pod(capsys, tmp_path):
    line = error_line(capsys, "pack", "--snapshot", write(tmp_path, make_node_json(), pod("odd", cpu="-1")))
    assert "odd" in line


# ---- how it is used ----


def test_help_has_examples_and_completion_offers_the_command():
    shown = run("pack", "--help").stdout
    assert " cruise pack --snapshot cluster.json" in shown.partition("Examples:")[2]
    assert "--sizes" in completions("cruise pack --si")


@pytest.mark.beyond_core
def test_progress_is_shown_on_a_terminal_and_nowhere_else(tmp_path):
    file = write(tmp_path, make_node_json(), pod("web-1", "n1"), pod("late-1"))
    command = [sys.executable, "-m", "cruise", "pack", "--snapshot", file, "--format", "json"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "has no poddisruptionbudgets" in told
    assert told.count("\n") == 1
    _, seen = run_on_terminal(command)
    assert b"2 of 2 pods placed, no more can be" in seen


def test_ctrl_c_ends_it_with_130_and_leaves_no_process(tmp_path):
    file = write(tmp_path, *CROWDED)
    (tmp_path / "cache").mkdir()
    from cruise.runtime.packing.kernel_cache import compute_kernels_key

    (tmp_path / "cache" / f"compiled-{compute_kernels_key()}").mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "cruise", "pack", "--snapshot", file, "--time-limit", "60"],
        stderr=subprocess.PIPE,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        # Who was started in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    children = wait_for_children(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{child}") for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [child for child in children if os.path.exists(f"/proc/{child}")] == []


def wait_for_children(process_id: int) -> list[str]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{process_id}/task/{process_id}/children") as file:
            if children := file.read().split():
                return children
        time.sleep(0.05)
    return []


def test_a_memory_limit_of_0_stays_in_a_plan_that_shrinks_the_pod(packed, tmp_path):
    """The API server accepts it, and the runtime takes it for no limit."""
    unlimited = {"name": "app", "resources": {"requests": {"cpu": "3500m"}, "limits": {"memory": "0"}}}
    objects = (make_node_json("n1", cpu="4"), make_pod_json("web-1", node="n1", containers=[unlimited]))
    usage = tmp_path / "usage.json"
    usage.write_text(json.dumps(make_usage_json(make_usage_item_json(pod="web-1"))))
    document = packed(*objects, pod("late-1", cpu="2"), options=("--time-limit", "0", "--usage", str(usage)))
    assert places(document) == {"late-1": "n1"}
    [resized] = document["resizes"]
    assert resized["pod"] == "web-1"
