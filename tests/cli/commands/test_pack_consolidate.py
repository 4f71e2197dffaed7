"""`cruise pack --consolidate`: the minimum number of nodes, why others are kept, and which to add."""

import json

import pytest

from cruise.cli import main
from tests.builders import make_budget_json, make_container_json, make_node_json, make_pod_json, make_workload_json
from tests.cli.commands.test_pack import OWNERS, write
from tests.cli.test_cli import alone, error_line

__all__ = ["alone"]

SOLVED = ("--consolidate", "--work", "1e8")
TYPE = {"name": "big", "allocatable": {"cpu": "8", "memory": "32Gi", "pods": 20}, "price": 3, "limit": 2}


def pod(name, node=None, cpu="1", **more):
    return make_pod_json(name, node=node, containers=[make_container_json(cpu=cpu, memory="1Gi")], **more)


def daemon(name, node):
    return pod(name, node, cpu="500m", owner="DaemonSet/agent")


def nodes(count, cpu="4", **more):
    return [make_node_json(f"n{number}", cpu=cpu, **more) for number in range(1, count + 1)]


@pytest.fixture
def consolidated(tmp_path, capsys):
    """Runs `cruise pack --consolidate` on some objects; returns the document."""

    def run(*objects, options=()):
        file = write(tmp_path, *objects)
        assert main(["pack", "--snapshot", file, "--format", "json", *SOLVED, *options]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def types(directory, *items):
    file = directory / "types.json"
    file.write_text(json.dumps({"apiVersion": "cruise.io/v1", "kind": "NodeTypes", "items": list(items)}))
    return str(file)


@pytest.mark.beyond_core
def test_three_pods_on_three_nodes_share_one(consolidated):
    found = consolidated(*nodes(3), *(pod(f"web-{n}", f"n{n}") for n in (1, 2, 3)))
    assert (found["nodesBefore"], found["nodesAfter"], found["nodesBound"]) == (3, 1, 1)
    assert found["status"] == "optimal"
    assert len(found["moves"]) == len(found["emptied"]) == 2
    assert {move["from"] for move in found["moves"]} == set(found["emptied"])
    assert (found["add"], found["priceAfter"]) == ([], None)


def test_where_there_is_no_node_none_is_added_of_the_kinds_there_are(consolidated):
    found = consolidated(pod("web-1"))
    assert (found["nodesBefore"], found["nodesAfter"], found["add"]) == (0, 0, [])
    assert [(one["pod"], one["blockedBy"]) for one in found["unplaced"]] == [("web-1", ["no-nodes"])]


@pytest.mark.beyond_core
def test_nodes_that_could_be_added_and_are_not_count_among_all_nodes_only_where_they_are(tmp_path, capsys):
    for cpu, count in (("1", 2), ("4", 3)):
        running = (pod(f"web-{n}", f"n{n}", cpu) for n in (1, 2))
        assert main(["pack", "--snapshot", write(tmp_path, *nodes(2), *running, pod("web-3", cpu=cpu)), *SOLVED]) == 0
        assert f"all {count} nodes" in capsys.readouterr().out


@pytest.mark.beyond_core
def test_daemons_do_not_keep_a_node_in_use_but_need_capacity(consolidated):
    daemons = [daemon(f"agent-{n}", f"n{n}") for n in (1, 2)]
    assert consolidated(*nodes(2), *daemons)["nodesBefore"] == 0
    tight = consolidated(*nodes(2), *daemons, pod("web-1", "n1", cpu="2"), pod("web-2", "n2", cpu="2"))
    assert (tight["nodesAfter"], tight["nodesBound"]) == (2, 2)


@pytest.mark.beyond_core
def test_no_more_pods_move_than_allowed(consolidated):
    found = consolidated(*nodes(4), *(pod(f"web-{n}", f"n{n}") for n in (1, 2, 3, 4)), options=("--max-evictions", "1"))
    assert (found["nodesAfter"], found["nodesBound"], len(found["moves"])) == (3, 3, 1)


@pytest.mark.beyond_core
def test_a_budget_that_allows_one_lets_all_move_one_after_the_other(consolidated):
    budget = make_budget_json(selector={"matchLabels": {"app": "web"}}, disruptions_allowed=1)
    found = consolidated(*nodes(3), budget, *(pod(f"web-{n}", f"n{n}") for n in (1, 2, 3)))
    assert found["nodesAfter"] == 1


@pytest.mark.beyond_core
def test_an_exhausted_disruption_budget_is_named_with_its_cost(consolidated):
    labels = {"app": "db"}
    shut = make_budget_json("db", selector={"matchLabels": labels}, disruptions_allowed=0)
    pods = [pod("web-1", "n1"), pod("db-1", "n2", labels=labels), pod("db-2", "n3", labels=labels)]
    found = consolidated(*nodes(3), shut, *pods)
    assert (found["nodesAfter"], found["nodesBound"]) == (2, 2)
    assert found["keptByReason"] == [{"reason": "budget-exhausted: PodDisruptionBudget shop/db", "nodes": 2}]
    assert found["nodesAfterByLiftedConstraint"] == [{"constraint": "PodDisruptionBudget shop/db", "nodes": 1}]


@pytest.mark.beyond_core
def test_pods_that_fit_nowhere_get_nodes_of_the_kind_that_is_there(consolidated):
    found = consolidated(*nodes(1), *(pod(f"web-{n}", cpu="3") for n in (1, 2, 3)), daemon("agent-1", "n1"))
    assert found["unplaced"] == []
    assert (found["nodesBefore"], found["nodesAfter"]) == (0, 3)
    assert found["add"] == [{"type": "like n1", "count": 2}]


@pytest.mark.beyond_core
@pytest.mark.parametrize("key", ["topology.kubernetes.io/zone", "kubernetes.io/hostname"])
@pytest.mark.parametrize("there", [0, 1])
def test_a_node_that_is_not_added_is_no_domain_that_pods_are_spread_over(consolidated, tmp_path, key, there):
    # With an empty zone or node of its own kind only one of them could be placed on each.
    spread = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    pods = [pod(f"web-{n}", labels={"app": "web"}) for n in range(4)]
    for one in pods:
        one["spec"]["topologySpreadConstraints"] = [spread]
    labels = {
        "topology.kubernetes.io/zone": "a",
        "kubernetes.io/hostname": "n1",
        "node.kubernetes.io/instance-type": "big",
    }
    kinds = types(tmp_path, TYPE | {"labels": {"topology.kubernetes.io/zone": "b"}})
    found = consolidated(*nodes(there, labels=labels), *pods, options=("--node-types", kinds))
    assert (found["status"], found["nodesAfter"], found["nodesBound"], found["priceBound"]) == ("optimal", 1, 1, 3)
    assert [one["count"] for one in found["add"]] == [1] * (1 - there)


@pytest.mark.beyond_core
def test_an_expensive_node_is_drained_and_a_cheap_one_added(consolidated, tmp_path):
    small = {"name": "small", "allocatable": {"cpu": "4", "memory": "16Gi"}, "price": 1}
    labels = {"node.kubernetes.io/instance-type": "big"}
    there = [make_node_json("n1", cpu="8", labels=labels), pod("web-1", "n1"), pod("web-2", "n1")]
    found = consolidated(*there, options=("--node-types", types(tmp_path, TYPE, small)))
    assert found["emptied"] == ["n1"]
    assert found["add"] == [{"type": "small", "count": 1}]
    assert (found["priceBefore"], found["priceAfter"], found["priceBound"]) == (3, 1, 1)


@pytest.mark.beyond_core
def test_no_more_nodes_of_a_type_are_added_than_its_limit(consolidated, tmp_path):
    waiting = [pod(f"web-{n}", cpu="7") for n in range(4)]
    found = consolidated(*waiting, options=("--node-types", types(tmp_path, TYPE)))
    assert found["add"] == [{"type": "big", "count": 2}]
    assert len(found["unplaced"]) == 2


def test_the_table_says_what_is_proved_and_in_which_order_nodes_are_drained(tmp_path, capsys):
    file = write(tmp_path, *nodes(2), pod("web-1", "n1"), pod("web-2", "n2"))
    assert main(["pack", "--snapshot", file, *SOLVED]) == 0
    out = capsys.readouterr().out
    assert "proved that no plan needs fewer nodes" in " ".join(out.split())
    assert "Drained in this order: n" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-evictions", "3"), "--max-evictions needs --consolidate"),
        (("--node-types", "x.json"), "--node-types needs --consolidate"),
    ],
)
def test_options_of_consolidation_need_it(tmp_path, capsys, options, said):
    assert error_line(capsys, "pack", "--snapshot", write(tmp_path, *nodes(1)), *options) == said


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (TYPE | {"price": 0}, "items[0].price: 0 is not a price; write a number above 0"),
        (TYPE | {"price": 1e15}, "items[0].price: 1e+15 is too large; use a larger unit for all prices, up to 1e+06"),
        (TYPE | {"limit": -1}, "items[0].limit: -1 is negative; write a number of 0 or more"),
        (
            TYPE | {"allocatable": {"cpu": "8"}},
            "items[0].allocatable.memory: is missing; write what pods can request of such",
        ),
        (
            TYPE | {"allocatable": {"cpu": "8000", "memory": "32Gi"}},
            'allocatable.cpu: "8000" is more than any node has',
        ),
        (TYPE | {"allocatable": {"cpu": "x", "memory": "1"}}, "items[0].allocatable.cpu:"),
        (TYPE | {"colour": "red"}, "items[0]"),
        ({}, "items[0]: has no name; add it"),
    ],
)
def test_wrong_types_are_rejected_with_their_place(tmp_path, capsys, item, said):
    file = write(tmp_path, *nodes(1))
    line = error_line(capsys, "pack", "--snapshot", file, "--consolidate", "--node-types", types(tmp_path, item))
    assert said in line
    assert "types.json" in line


def test_a_node_of_a_type_without_a_price_is_named(tmp_path, capsys):
    file = write(tmp_path, *nodes(1))
    line = error_line(capsys, "pack", "--snapshot", file, "--consolidate", "--node-types", types(tmp_path, TYPE))
    assert line == "Node n1 has no label node.kubernetes.io/instance-type, so its price is not known; add the label"


def test_other_documents_are_no_node_types(tmp_path, capsys):
    other = write(tmp_path, *nodes(1), owners=OWNERS)
    line = error_line(capsys, "pack", "--snapshot", other, "--consolidate", "--node-types", other)
    assert "cluster.json" in line


@pytest.mark.beyond_core
def test_a_statefulset_of_many_zones_keeps_its_order(consolidated):
    spread = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    there = [make_node_json(f"n{n}", cpu="4", labels={"zone": "ab"[n % 2]}) for n in range(4)]
    pods = [pod(f"web-{n}", f"n{n}", spec={"topologySpreadConstraints": [spread]}) for n in range(4)]
    found = consolidated(*there, *pods, make_workload_json("StatefulSet", "other"))
    assert found["nodesAfter"] == 2
