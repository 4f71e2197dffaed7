"""A client of the real API server, for all adapters that use one."""

from collections.abc import AsyncIterator

import pytest

from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import KubeSettings, connect
from tests.controlplane.control_plane import ControlPlane


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """A client with the admin's kubeconfig, as fast as the server is."""
    settings = KubeSettings(control_plane.kubeconfig(), requests_per_second=10_000, burst=10_000)
    async with connect(settings) as connected:
        yield connected
