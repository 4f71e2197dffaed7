"""A webhook Service and its endpoint behind a real API server, at a non-loopback address of this machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from tests.controlplane.api import Api
from tests.controlplane.manifests import container, pod


@contextmanager
def on_address(address: str, target: str) -> Iterator[int]:
    """Hand connections to `address` on to a server on loopback, which an API server refuses to speak to."""
    place = urlsplit(target)
    with socket.create_server((address, 0)) as listener:
        listener.settimeout(0.1)
        stop = threading.Event()

        def hand_on(one: socket.socket, other: socket.socket) -> None:
            with suppress(OSError):
                while piece := one.recv(1 << 16):
                    other.sendall(piece)
                other.shutdown(socket.SHUT_WR)

        def accept() -> None:
            while not stop.is_set():
                with suppress(TimeoutError):
                    client, _ = listener.accept()
                    client.settimeout(None)
                    server = socket.create_connection((place.hostname, place.port))
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=hand_on, args=pair, daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            thread.join()


def own_address() -> str:
    """This machine's address, as others see it; skips where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # Nothing is sent.
        probe.connect(("198.51.100.1", 9))
        found = str(probe.getsockname()[0])
        if not found.startswith("127."):
            return found
    pytest.skip("this machine has no address but loopback, which API servers hand no requests on to")


def serve_by_service(admin: Api, namespace: str, port: int, address: str) -> None:
    """A Service as the usual chart makes it, and a pod that it leads to: API servers speak to no other address."""
    labels = {"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "server"}
    name = {"namespace": namespace, "name": "prometheus-server"}
    admin.create(pod(namespace, "prometheus-server", container(), nodeSelector={"kubernetes.io/hostname": "none"}))
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    admin.patch("pods", namespace, "prometheus-server", status, subresource="status")
    metadata = {**name, "labels": labels}
    ports = [{"name": "http", "port": 80, "targetPort": port}]
    admin.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    addresses = [{"ip": address, "targetRef": {"kind": "Pod", **name}}]
    subsets = [{"addresses": addresses, "ports": [{"name": "http", "port": port}]}]
    admin.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
