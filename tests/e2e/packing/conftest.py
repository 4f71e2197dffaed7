"""A hundred drawn clusters on the real control plane."""

import secrets
from collections.abc import Iterator

import pytest

from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.e2e.packing.drawing import Drawing
from tests.e2e.packing.stage import Stage

CLUSTERS = 100


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane) -> Iterator[Stage]:
    """The clusters of seeds 1 to 100, put up; what pends there waits for nobody's scheduler."""
    run = f"pack{secrets.token_hex(2)}"
    clusters = [Drawing(run, number, seed=number).cluster() for number in range(1, CLUSTERS + 1)]
    with TestKubelet(control_plane.api(KUBELET.name), threads=2) as kubelet:
        stage = Stage(control_plane.api(), kubelet, run, clusters)
        try:
            stage.put_up()
            yield stage
        finally:
            stage.take_down()
