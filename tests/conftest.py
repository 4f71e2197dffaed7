"""Settings shared by all tests."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest
import structlog

from benchmarks.recordings import make_recording
from cruise.backtest.recordings.recording import UsageRecording
from cruise.runtime.packing.kernel_cache import choose_cache_directory
from tests import scheduling, tiers
from tests.controlplane.api import Api
from tests.controlplane.binaries import NotAvailable, programs
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace
from tests.postgres_servers import DebianServer, change, debian_server, dsn_below, embedded_server
from tests.recorded_metrics import prometheus_with

# Formatting every local variable of a traceback takes a second.
PLAIN = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
# What the installation has compiled is not compiled again; kernels look for it when they are imported.
if (cache := choose_cache_directory(os.environ)) is not None:
    numba.config.CACHE_DIR = str(cache)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run say how much it tries."""
    tiers.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Settle how many examples and seeds are tried, before any test is read."""
    tiers.begin(config)
    # What is collected stays to the end, and looking through it for garbage takes half of the collecting.
    gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no module that the tier has no place for."""
    return tiers.leaves_out(config, collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the tier has no place for, and put the rest in order."""
    tiers.choose(config, items)
    scheduling.arrange(config, items)


def pytest_collection_finish() -> None:
    """Count garbage again, in addition to what has been collected."""
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> scheduling.FileScheduling:
    """Spread the tests over the workers, if there are several."""
    return scheduling.FileScheduling(config, log)


@pytest.fixture(autouse=True)
def use_default_logging() -> None:
    """Forget how an earlier test had logs written; tracebacks are plain, as the program's are."""
    structlog.reset_defaults()
    *others, _ = structlog.get_config()["processors"]
    structlog.configure([*others, PLAIN])


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> tiers.Seeds:
    """The seeds below a number that this run tries."""
    return tiers.seeds_of(request.config)


@pytest.fixture(scope="session")
def run_long(request: pytest.FixtureRequest) -> bool:
    """Tells whether nothing is spared."""
    return tiers.is_long(request.config)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane, shared by the tests of one worker; each has its own namespace and nodes."""
    try:
        programs()
    except NotAvailable as missing:
        pytest.skip(f"no Kubernetes control plane on this machine: {missing}")
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), audit_level="RequestResponse") as plane:
        yield plane


@pytest.fixture(scope="session")
def embedded_postgres() -> Iterator[Path]:
    """The data directory of an embedded Postgres, shared by the tests of one worker: `emptied` makes it anew."""
    with embedded_server() as data_dir:
        change(dsn_below(data_dir), "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield data_dir


@pytest.fixture(scope="session")
def debian_postgres() -> Iterator[DebianServer]:
    """A Postgres of Debian's packages, shared by the tests of one worker; who stops it starts it again."""
    with debian_server() as server:
        yield server


@pytest.fixture(scope="session")
def recorded_day() -> UsageRecording:
    """A day of four containers, every five minutes."""
    return make_recording(4, 1, 300, seed=3)


@pytest.fixture(scope="session")
def day_server(recorded_day: UsageRecording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has scraped the recorded day, shared by the tests of one worker."""
    with prometheus_with(recorded_day, tmp_path_factory.mktemp("day")) as url:
        yield url


@pytest.fixture
def admin(control_plane: ControlPlane) -> Api:
    """The control plane's admin; a server that ended in an earlier test is there again."""
    control_plane.revive()
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
