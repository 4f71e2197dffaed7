"""A Dask cluster as the workers of `cruise backtest`: the task of a lost worker runs again on another."""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from urllib.parse import urlsplit

from cruise import __version__
from cruise.cli.terminal import silence_logs
from cruise.errors import BadInput, Unavailable

_CONNECT_SECONDS = 15
_SCHEMES = ("tcp", "tls", "ws", "wss")


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """Yield an executor of the cluster at an address such as tcp://scheduler:8786.

    Raises BadInput without the library, and where a worker has another version of cruise; Unavailable where nothing
    answers, and where the cluster gives a task up.
    """
    _check_address(address)
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise BadInput(f'--scheduler needs the library of Dask ({error}): pip install "cruise[dask]"') from error
    _quieten("distributed")
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise Unavailable(f"--scheduler: no Dask scheduler answers at {address}: {error}") from error
    with client:
        try:
            versions = client.run(begin)
        except ImportError as error:
            raise BadInput(f"--scheduler: the workers have no cruise of version {__version__}: {error}") from error
        _check_workers(address, versions)
        try:
            yield client.get_executor(pure=False)
        except KilledWorker as error:
            raise Unavailable(f"--scheduler: one replay ended several workers and is given up: {error}") from error
        except CancelledError as error:
            raise Unavailable(f"--scheduler: the Dask scheduler at {address} has gone away") from error


def begin() -> str:
    """Prepare a worker, and return its version of cruise."""
    silence_logs()
    return __version__


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        known = parts.scheme in _SCHEMES and parts.hostname and parts.port
    except ValueError:
        known = None
    if not known:
        raise BadInput(f'--scheduler: "{address}" is no address of a Dask scheduler; write e.g. tcp://scheduler:8786')


def _quieten(library: str) -> None:
    """Keep what a library logs off standard error: what goes wrong is said once, here."""
    for name in (library, *logging.root.manager.loggerDict):
        if name == library or name.startswith(f"{library}."):
            # Each has a level of its own.
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _check_workers(address: str, versions: Mapping[str, str]) -> None:
    if not versions:
        raise Unavailable(f"--scheduler: the scheduler at {address} has no workers; start some: dask worker {address}")
    for worker, version in versions.items():
        if version != __version__:
            raise BadInput(f"--scheduler: worker {worker} has cruise {version}, and this is {__version__}: use one")
