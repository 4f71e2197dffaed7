"""The fixtures of all scenes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cruise.runtime.packing.solver_client import SolverProcess
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace
from tests.e2e.live.measured import MeasuredStage, measure
from tests.e2e.live.stage import LiveStage, database_of


@pytest.fixture(scope="session")
def warm_solver() -> bool:
    """Tells whether the packing process starts; its kernels are compiled by then, as after an installation."""

    async def look() -> bool:
        async with SolverProcess() as worker:
            return await worker.wait_until_warm()

    return asyncio.run(look())


@pytest.fixture(scope="module")
def shared_stage(
    control_plane: ControlPlane, embedded_postgres: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MeasuredStage]:
    """A stage with two workloads for the tests of a file that only read."""
    admin, directory = control_plane.api(), tmp_path_factory.mktemp("shared")
    with (
        TestKubelet(control_plane.api(KUBELET.name)) as kubelet,
        own_namespace(admin) as namespace,
        LiveStage(control_plane, kubelet, namespace, database_of(embedded_postgres), directory) as stage,
    ):
        yield measure(stage)


@pytest.fixture
def measured(shared_stage: MeasuredStage) -> MeasuredStage:
    """The shared stage, without the writes and permissions of earlier tests."""
    shared_stage.stage.mark()
    shared_stage.stage.forget_rights()
    return shared_stage


@pytest.fixture
def stage(
    control_plane: ControlPlane, kubelet: TestKubelet, namespace: str, embedded_postgres: Path, tmp_path: Path
) -> Iterator[LiveStage]:
    """A stage without nodes, pods and usage."""
    with LiveStage(control_plane, kubelet, namespace, database_of(embedded_postgres), tmp_path) as stage:
        yield stage
