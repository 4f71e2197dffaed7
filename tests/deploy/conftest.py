"""A control plane for chart releases."""

from collections.abc import Iterator

import pytest

from tests.controlplane.binaries import NotAvailable
from tests.controlplane.control_plane import ControlPlane
from tests.deploy.releases import Cluster
from tests.helm.binary import helm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        helm()
        plane = ControlPlane(tmp_path_factory.mktemp("releases"))
        with plane:
            yield Cluster(plane, plane.api(), tmp_path_factory.mktemp("home"))
    except NotAvailable as missing:
        pytest.skip(f"no Helm or no Kubernetes control plane on this machine: {missing}")


@pytest.fixture
def away(cluster: Cluster) -> Iterator[None]:
    """Leaves nothing of a scene that failed to the next one."""
    yield
    if "cruise" in cluster.helm("list", "--short"):
        cluster.helm("uninstall", "cruise")
