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
CONTROLLER_MANAGER = "kube-controller-manager"


@dataclass(frozen=True, slots=True)
class User:
    """A user with a token; RBAC determines the permissions."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", ("system:masters",))
KUBELET = User("test-kubelet", ("system:masters",))
# With RBAC they would be refused until the API server has read the roles, and retry for seconds.
CONTROLLERS = User("system:kube-controller-manager", ("system:masters",))
SCHEDULER = User("system:kube-scheduler", ("system:masters",))


class ControlPlane:
    """A control plane within a context. Entering raises binaries.NotAvailable if it cannot run.

    `users` are added to the admin, and the flags to those of each server. A given `directory` keeps the logs; otherwise
    it is removed. The servers end with this process.
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
        """The directory of logs, certificates and kubeconfigs."""
        assert self._directory is not None, "the control plane is not running"
        return self._directory

    @property
    def address(self) -> str:
        """The API server's URL; a restart does not change it."""
        return f"https://127.0.0.1:{self._ports.api_server}"

    @property
    def ca_file(self) -> Path:
        """The CA of the API server's certificate."""
        return self.directory / "certificates" / "apiserver.crt"

    @property
    def webhook_client_ca_file(self) -> Path:
        """The CA of the API server's client certificate for webhooks and kubelets; its common name is `API_SERVER`."""
        assert self._webhook_clients is not None, "the control plane is not running"
        return self._webhook_clients

    @property
    def audit(self) -> AuditLog:
        """The audit log."""
        return AuditLog(self.directory / "audit.log")

    def api(self, user: str = ADMIN.name, token: str | None = None) -> Api:
        """Return a client for one of the users, or for the holder of `token`, such as a ServiceAccount."""
        return Api(self.address, self.ca_file, token or self._tokens[user])

    def token(self, user: str) -> str:
        """Return the token of one of the users."""
        return self._tokens[user]

    def kubeconfig(self, user: str = ADMIN.name, token: str | None = None) -> Path:
        """Write a kubeconfig for one of the users, or for the holder of `token`."""
        place = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        place.write_text(kubeconfig_text(self.address, self.ca_file, user, token or self._tokens[user]))
        return place

    def log(self, server: str) -> str:
        """Return the log of a server, by its program's name, such as `kube-scheduler`."""
        return (self.directory / f"{server}.log").read_text(errors="replace")

    def pids(self) -> dict[str, int]:
        """The process ids of the running servers, by name."""
        return {name: server.pid for name, server in self._servers.items() if server.running}

    def alive(self) -> bool:
        """Check that every server runs. Fails with the log of one that has ended."""
        for name, server in self._servers.items():
            assert server.running, f"{name} has ended:\n{self.log(name)[-3000:]}"
        return True

    def pause(self, server: str = API_SERVER) -> None:
        """Stop a server's process with all connections open."""
        self._servers[server].pause()

    def resume(self, server: str = API_SERVER) -> None:
        """End a pause."""
        self._servers[server].resume()

    def kill_api_server(self) -> None:
        """Kill the API server: connections break, and new ones are refused."""
        self._servers[API_SERVER].kill()

    def start_api_server(self) -> None:
        """Start the API server with its old port and data, and wait until it is ready."""
        self._start(api_server_command(self.directory, self._ports, self._flags))
        # At its first start it writes its certificate, and then the key.
        key = self.ca_file.with_suffix(".key")
        wait_until(lambda: self.alive() and key.exists(), "the API server has a certificate")
        self._await_api_server()

    def revive(self) -> None:
        """Restart servers that have ended, and print why."""
        ended = [server for server in self._servers.values() if not server.running]
        for server in ended:
            print(f"{server.name} has ended and is started anew:\n{self.log(server.name)[-3000:]}")
            self._servers[server.name] = server.started_anew()
        if ended:
            self._await_api_server()

    def restart_controller_manager(self) -> None:
        """Kill and restart it, as a cluster's own would end when it cannot renew its Lease.

        One that outlives its API server may count a creation as under way whose answer it lost, and make no pod of that
        ReplicaSet until something else changes.
        """
        ended = self._servers[CONTROLLER_MANAGER]
        ended.kill()
        self._servers[CONTROLLER_MANAGER] = ended.started_anew()

    def restart(self) -> None:
        """Kill and restart the API server: older watches get 410."""
        self.kill_api_server()
        self.start_api_server()

    def __enter__(self) -> "ControlPlane":
        """Start everything, and wait until the API server is ready and controllers work."""
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
            # The controller manager exits if the API server is stopped before all controllers exist.
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
        # Servers that depend on others are stopped first.
        for server in reversed(self._servers.values()):
            server.kill()
        self._servers.clear()
        shutil.rmtree(self.directory if self._kept is None else self.directory / "etcd", ignore_errors=True)
        self._directory = None

    def _write_client_certificate(self) -> None:
        """Create the API server's client certificate for webhooks and kubelets."""
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
    """Return the environment without proxies and without the variables of a pod."""
    left_out = ("KUBERNETES_", "ETCD_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(left_out) and not name.lower().endswith("_proxy")
    }


def _free_ports(count: int) -> list[int]:
    """Return free loopback ports below the kernel's ephemeral range, so that no other process gets them."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(16000, 32000)
        with socket.socket() as probe:
            if port not in found and probe.connect_ex(("127.0.0.1", port)):
                found.append(port)
    return found
