"""A real Kubernetes control plane on loopback ports: etcd, API server, scheduler and controller manager."""

import os
import random
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from types import TracebackType

from tests.client_certificates import ClientAuthority
from tests.controlplane.api import Api, ApiError, wait_until
from tests.controlplane.audit import AuditLevel, AuditLog
from tests.controlplane.binaries import programs
from tests.controlplane.server_flags import (
    Flags,
    Ports,
    api_server_command,
    controller_manager_command,
    etcd_command,
    kubeconfig_text,
    scheduler_command,
    write_admission,
)
from tests.controlplane.server_process import ServerProcess

API_SERVER = "kube-apiserver"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody whom the API server knows by a token; what they may do is up to RBAC."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", ("system:masters",))
KUBELET = User("test-kubelet", ("system:masters",))
# By their own roles they would be refused until the API server has read those, and then wait for seconds.
CONTROLLERS = User("system:kube-controller-manager", ("system:masters",))
SCHEDULER = User("system:kube-scheduler", ("system:masters",))


class ControlPlane:
    """A control plane for as long as a `with` lasts. Entering raises binaries.NotAvailable where it cannot run.

    `users` are known besides the admin. The flags are added to each server's own. What it writes is in `directory`: one
    that is given keeps the logs, its own is removed. No server outlives this process, however that ends.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        users: Sequence[User] = (),
        audit_level: AuditLevel = "Metadata",
        feature_gates: Mapping[str, bool] | None = None,
        api_server_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
    ) -> None:
        self._kept = directory
        self._users = {user.name: user for user in (ADMIN, KUBELET, CONTROLLERS, SCHEDULER, *users)}
        self._tokens = {name: secrets.token_hex(16) for name in self._users}
        self._flags = Flags(
            feature_gates or {}, api_server_flags, controller_manager_flags, scheduler_flags, audit_level
        )
        self._servers: dict[str, ServerProcess] = {}
        self._ports = Ports(0, 0, 0)
        self._directory: Path | None = None
        self._webhook_clients: Path | None = None

    @property
    def directory(self) -> Path:
        """Where logs, certificates and kubeconfigs are."""
        assert self._directory is not None, "the control plane is not running"
        return self._directory

    @property
    def address(self) -> str:
        """The API server's URL; it outlives a restart."""
        return f"https://127.0.0.1:{self._ports.api_server}"

    @property
    def ca_file(self) -> Path:
        """The certificates that vouch for the API server."""
        return self.directory / "certificates" / "apiserver.crt"

    @property
    def webhook_client_ca_file(self) -> Path:
        """The authority that vouches for the API server at webhooks and kubelets; its name there is `API_SERVER`."""
        assert self._webhook_clients is not None, "the control plane is not running"
        return self._webhook_clients

    @property
    def audit(self) -> AuditLog:
        """What was asked of the API server."""
        return AuditLog(self.directory / "audit.log")

    def api(self, user: str = ADMIN.name, token: str | None = None) -> Api:
        """A client for one of the users, or for whoever has `token`, such as a ServiceAccount."""
        return Api(self.address, self.ca_file, token or self._tokens[user])

    def token(self, user: str) -> str:
        """The token of one of the users."""
        return self._tokens[user]

    def kubeconfig(self, user: str = ADMIN.name, token: str | None = None) -> Path:
        """A kubeconfig for one of the users, or under any other name for whoever has `token`."""
        place = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        place.write_text(kubeconfig_text(self.address, self.ca_file, user, token or self._tokens[user]))
        return place

    def log(self, server: str) -> str:
        """What a server has logged, by its program's name, such as `kube-scheduler`."""
        return (self.directory / f"{server}.log").read_text(errors="replace")

    def pids(self) -> dict[str, int]:
        """The running servers' process ids, by name."""
        return {name: server.pid for name, server in self._servers.items() if server.running}

    def alive(self) -> bool:
        """Tell that every server runs. Fails with the log of one that has ended."""
        for name, server in self._servers.items():
            assert server.running, f"{name} has ended:\n{self.log(name)[-3000:]}"
        return True

    def pause(self) -> None:
        """Let the API server answer nothing, with every connection open."""
        self._servers[API_SERVER].pause()

    def resume(self) -> None:
        """End a pause."""
        self._servers[API_SERVER].resume()

    def kill_api_server(self) -> None:
        """Take the API server away: connections break, and new ones are refused."""
        self._servers[API_SERVER].kill()

    def start_api_server(self) -> None:
        """Start the API server, on its old port and with the same objects, and wait until it is ready."""
        self._start(api_server_command(self.directory, self._ports, self._flags))
        # It writes its certificate itself at its first start, and the key after it.
        key = self.ca_file.with_suffix(".key")
        wait_until(lambda: self.alive() and key.exists(), "the API server has a certificate")
        self._await_api_server()

    def revive(self) -> None:
        """Start anew what has ended by itself, and print why it did; nothing where all servers run."""
        ended = [server for server in self._servers.values() if not server.running]
        for server in ended:
            print(f"{server.name} has ended and is started anew:\n{self.log(server.name)[-3000:]}")
            self._servers[server.name] = server.started_anew()
        if ended:
            self._await_api_server()

    def restart(self) -> None:
        """Kill the API server and start it anew: older watches are told 410."""
        self.kill_api_server()
        self.start_api_server()

    def __enter__(self) -> "ControlPlane":
        """Start everything, and wait until the API server is ready and controllers are at work."""
        programs()
        self._directory = self._kept or Path(tempfile.mkdtemp(prefix="cruise-control-plane-"))
        self._ports = Ports(*_free_ports(3))
        try:
            self._write_tokens()
            self._write_client_certificate()
            self._start(etcd_command(self.directory, self._ports))
            self.start_api_server()
            self._start(scheduler_command(self.directory, self.kubeconfig(SCHEDULER.name), self._flags))
            self._start(controller_manager_command(self.kubeconfig(CONTROLLERS.name), self._flags))
            # An API server that goes before it has made all of its controllers ends the controller manager.
            admin = self.api()
            wait_until(
                lambda: self.alive() and admin.items("serviceaccounts", "default"), "the controllers are at work"
            )
            admin.close()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._stop()

    def _start(self, command: list[str]) -> None:
        program, *arguments = command
        log = self.directory / f"{program}.log"
        self._servers[program] = ServerProcess([str(programs() / program), *arguments], log, _environment())

    def _await_api_server(self) -> None:
        api = self.api()
        wait_until(lambda: self.alive() and _is_ready(api), "the API server is ready")
        api.close()

    def _stop(self) -> None:
        # Those that would complain about the others go first.
        for server in reversed(self._servers.values()):
            server.kill()
        self._servers.clear()
        shutil.rmtree(self.directory if self._kept is None else self.directory / "etcd", ignore_errors=True)
        self._directory = None

    def _write_client_certificate(self) -> None:
        """Give the API server a certificate to show to webhooks and kubelets."""
        authority = ClientAuthority(self.directory, "webhook-clients")
        self._webhook_clients = authority.file
        write_admission(self.directory, authority.client(API_SERVER))

    def _write_tokens(self) -> None:
        lines = [
            f'{self._tokens[name]},{name},{name},"{",".join(user.groups)}"\n' for name, user in self._users.items()
        ]
        (self.directory / "tokens.csv").write_text("".join(lines))


def _is_ready(api: Api) -> bool:
    try:
        return bool(api.get("/readyz"))
    except (ApiError, OSError, HTTPException):
        return False


def _environment() -> dict[str, str]:
    """The environment without proxies, which loopback addresses need none of, and without a pod's variables."""
    left_out = ("KUBERNETES_", "ETCD_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(left_out) and not name.lower().endswith("_proxy")
    }


def _free_ports(count: int) -> list[int]:
    """Loopback ports below those that the kernel hands out by itself, so that nobody takes them by accident."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(16000, 32000)
        with socket.socket() as probe:
            if port not in found and probe.connect_ex(("127.0.0.1", port)):
                found.append(port)
    return found
