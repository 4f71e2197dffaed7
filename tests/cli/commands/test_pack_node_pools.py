"""`cruise pack --consolidate` with Karpenter: node types, counts and NodePools."""

import pytest

from cruise.cli import main
from tests.cli.commands.test_pack import write
from tests.cli.commands.test_pack_consolidate import SOLVED, consolidated, pod, types
from tests.cli.test_cli import alone
from tests.karpenter import machine, only, pool, waiting

__all__ = ["alone", "consolidated"]


@pytest.mark.beyond_core
def test_one_small_pod_gets_a_small_machine(consolidated):
    there = [machine("n1", "m5.large", "2"), machine("n2", "m5.24xlarge", "96", memory="384Gi")]
    full = [pod("a", "n1", cpu="2"), pod("b", "n2", cpu="96")]
    assert consolidated(pool(), *there, *full, *waiting(1))["add"] == [
        {"type": "m5.large", "count": 1, "nodePool": "default"}
    ]


def test_types_of_one_node_pool_share_its_limits(consolidated):
    there = [machine("n1"), machine("n2", "m5.xlarge", "4", memory="16Gi")]
    full = [pod("a", "n1", cpu="2"), pod("b", "n2", cpu="4")]
    pods = [*waiting(1, cpu="4", spec={"priority": 5}), pod("small", cpu="2")]
    found = consolidated(pool(limits={"cpu": "10"}), *there, *full, *pods)
    assert found["add"] == [{"type": "m5.xlarge", "count": 1, "nodePool": "default"}]
    assert len(found["placed"]) == 1
    assert ["impossible" in one for one in found["unplaced"]] == [False]


@pytest.mark.beyond_core
def test_prices_are_read_from_a_file_by_instance_type(consolidated, tmp_path):
    kinds = [
        {"name": "m5.large", "allocatable": {"cpu": "2", "memory": "8Gi"}, "price": 3},
        {"name": "m5.xlarge", "allocatable": {"cpu": "4", "memory": "16Gi"}, "price": 2},
    ]
    there = [machine("n1"), machine("n2", "m5.xlarge", "4", memory="16Gi")]
    full = [pod("a", "n1", cpu="2"), pod("b", "n2", cpu="4")]
    options = ("--node-types", types(tmp_path, *kinds))
    found = consolidated(pool(), *there, *full, *waiting(1), options=options)
    assert found["add"] == [{"type": "m5.xlarge", "count": 1, "nodePool": "default"}]
    assert (found["emptied"], found["priceBefore"], found["priceAfter"]) == (["n1"], 5, 4)


@pytest.mark.beyond_core
def test_the_table_names_node_pools(tmp_path, capsys):
    unseen = pool("arm", requirements=[only("kubernetes.io/arch", "arm64")], node_class="arm")
    file = write(tmp_path, pool(), unseen, machine("n1"), pod("a", "n1", cpu="2"), *waiting(2))
    assert main(["pack", "--snapshot", file, *SOLVED]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Add 2 nodes of type m5.large from NodePool default." in out
    assert "NodePool arm is ignored: no node of its instance types was seen yet, so their sizes are unknown." in out
    assert "proved that no plan needs nodes of less size" in out
