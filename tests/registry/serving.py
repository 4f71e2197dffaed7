"""An OCI registry, built from its Go module when a long test first needs it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.controlplane.api import wait_until
from tests.go_tool import GoTool
from tests.prometheus_server import free_port

REGISTRY = GoTool("registry", Path(__file__).parent, "github.com/distribution/distribution/v3/cmd/registry", 3)


@contextmanager
def run_registry(directory: Path) -> Iterator[str]:
    """Serve an empty registry without TLS on a free loopback port; yields HOST:PORT. Raises NotAvailable."""
    program, address = REGISTRY.build(), f"127.0.0.1:{free_port()}"
    config = directory / "registry.yaml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: {address}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {directory / 'registry'}}}}}\n"
    )
    with (directory / "registry.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", config], stdout=log, stderr=log)
        try:
            wait_until(lambda: _answers(address), "the registry answers")
            yield address
        finally:
            process.kill()
            process.wait()


def _answers(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/v2/", timeout=5) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False
