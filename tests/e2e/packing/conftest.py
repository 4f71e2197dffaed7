"""Random clusters on the real control plane."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.e2e.packing.drawing import Drawing
from tests.e2e.packing.stage import PackingCluster


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, seeds: Callable[..., range]) -> Iterator[PackingCluster]:
    """The clusters of all seeds; their pending pods have no scheduler."""
    run = f"pack{secrets.token_hex(2)}"
    # 53 have about a hundred pods that plans place.
    clusters = [Drawing(run, seed, seed).cluster() for seed in range(101, 101 + len(seeds(300, 53)))]
    with TestKubelet(control_plane.api(KUBELET.name), threads=2) as kubelet:
        stage = PackingCluster(control_plane.api(), kubelet, run, clusters)
        try:
            stage.put_up()
            yield stage
        finally:
            stage.take_down()
