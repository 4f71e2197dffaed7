"""A client of the real API server, for all adapters that use one."""

from collections.abc import AsyncIterator

import pytest

from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from tests.controlplane.control_plane import ControlPlane


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[KubernetesClient]:
    """A client with the admin's kubeconfig, as fast as the server is."""
    settings = KubernetesSettings(control_plane.kubeconfig(), requests_per_second=10_000, burst=10_000)
    async with connect_to_kubernetes(settings) as connected:
        yield connected
