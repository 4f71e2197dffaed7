"""Settings that every test shares."""

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from tests.controlplane.api import Api
from tests.controlplane.binaries import NotAvailable, programs
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace

# Shared machines stall at random, so no example has a deadline. CI replays the same examples on every run,
# which keeps its verdict about the change; runs elsewhere go on searching.
settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def logs_as_by_default() -> None:
    """Forget how an earlier test had logs written."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane, shared by the tests of one worker; each has a namespace and nodes of its own."""
    try:
        programs()
    except NotAvailable as missing:
        pytest.skip(f"no Kubernetes control plane on this machine: {missing}")
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), audit_level="RequestResponse") as plane:
        yield plane


@pytest.fixture
def admin(control_plane: ControlPlane) -> Api:
    """The control plane's admin."""
    return control_plane.api()


@pytest.fixture
def kubelet(control_plane: ControlPlane) -> Iterator[TestKubelet]:
    """A kubelet without nodes; those that a test adds go with it."""
    with TestKubelet(control_plane.api(KUBELET.name)) as kubelet:
        yield kubelet


@pytest.fixture
def namespace(admin: Api, kubelet: TestKubelet) -> Iterator[str]:
    """A namespace that is emptied while there are kubelets to let its pods go."""
    with own_namespace(admin) as name:
        yield name
