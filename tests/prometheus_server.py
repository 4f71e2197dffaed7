"""A real Prometheus for tests: blocks written by promtool, and a server on a free loopback port."""

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cruise"


def binary(name: str) -> Path:
    """Find Prometheus' server or tool; skips the test where there is none."""
    unpacked = CACHE / "prometheus" / "usr" / "bin" / name
    found = unpacked if unpacked.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine: tests/setup/10-prometheus.sh says why")
    return Path(found)


def make_blocks(write: Callable[[Path], None], into: Path) -> None:
    """Make the blocks of the OpenMetrics text that `write` writes; `into` must not be there yet."""
    text = into.with_suffix(".txt")
    try:
        write(text)
        # One block for all, or the text is read once for every two hours.
        command = [str(binary("promtool")), "tsdb", "create-blocks-from", "--max-block-duration=768h"]
        command += ["openmetrics", str(text), str(into)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=into.parent)
        assert done.returncode == 0, done.stderr
    finally:
        text.unlink(missing_ok=True)


def kept_blocks(name: str, write: Callable[[Path], None], sources: Iterable[Path]) -> Path:
    """Make blocks once, and keep them in the cache as long as the `sources` that they follow from are the same."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    home = CACHE / "prometheus-blocks"
    place = home / f"{name}-{digest}"
    if place.is_dir():
        return place
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=home) as work:
        made = Path(work) / "blocks"
        make_blocks(write, made)
        for outdated in home.glob(f"{name}-*"):
            shutil.rmtree(outdated, ignore_errors=True)
        # Another process may have been faster.
        with suppress(OSError):
            made.rename(place)
    return place


@contextmanager
def running_prometheus(
    blocks_directory: Path | None = None,
    arguments: tuple[str, ...] = (),
    config: str = "global:\n  scrape_interval: 1h\n",
) -> Iterator[str]:
    """Run a server on a copy of the blocks; yields its address."""
    program = str(binary("prometheus"))
    with tempfile.TemporaryDirectory(prefix="prometheus-") as directory:
        storage = Path(directory) / "storage"
        if blocks_directory is None:
            storage.mkdir()
        else:
            shutil.copytree(blocks_directory, storage)
        (Path(directory) / "prometheus.yml").write_text(config)
        port = free_port()
        command = [
            program,
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={storage}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--storage.tsdb.retention.time=100y",
            "--log.level=error",
            *arguments,
        ]
        with (Path(directory) / "log").open("w") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_ready(server, f"{address}/-/ready", Path(directory) / "log")
            yield address
        finally:
            server.terminate()
            server.wait(timeout=120)


def wait_until_ready(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Wait until a server answers; fails with its log where it ends, or takes longer than 30 s."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.02)
    raise AssertionError(f"the server did not start: {log.read_text()}")


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
