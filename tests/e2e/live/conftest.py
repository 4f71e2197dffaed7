"""What every scene plays on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cruise.runtime.packing.worker import PackWorker
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.e2e.live.stage import Stage, database_of


@pytest.fixture(scope="session")
def warm_solver() -> bool:
    """Tells whether the packing process starts; its kernels are compiled by then, as after an installation."""

    async def look() -> bool:
        async with PackWorker() as worker:
            return await worker.ready()

    return asyncio.run(look())


@pytest.fixture
def stage(
    control_plane: ControlPlane, kubelet: TestKubelet, namespace: str, embedded_postgres: Path, tmp_path: Path
) -> Iterator[Stage]:
    """A stage without nodes, pods and usage."""
    with Stage(control_plane, kubelet, namespace, database_of(embedded_postgres), tmp_path) as stage:
        yield stage
