"""The cache of compiled kernels: a directory for exactly this release, writable and owned by this user."""

import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cruise.packer.kernels

KERNELS = Path(cruise.packer.kernels.__file__).parent
_WARM = "warm"
_KERNEL = re.compile(r"^@compile_(?:kernel|without_allocation|inline)$", re.MULTILINE)
_KEY_CHARACTERS = 16
_UNUSED_SECONDS = 30 * 86400.0


def compute_kernels_key(kernels: Path = KERNELS) -> str:
    """Return a digest of what compiled kernels depend on: their sources, the interpreter, Numba and the processor.

    Numba's own cache compares only the file of each function, and would reuse functions of other files that were
    inlined.
    """
    digest = hashlib.sha256()
    for path in sorted(kernels.rglob("*.py")):
        digest.update(f"{path.relative_to(kernels)}\0".encode() + path.read_bytes() + b"\0")
    digest.update(f"{sys.version}\0{_describe_compiler()}\0{platform.machine()}\0{_describe_processor()}".encode())
    return digest.hexdigest()[:_KEY_CHARACTERS]


def choose_cache_directory(environ: Mapping[str, str], kernels: Path = KERNELS) -> Path | None:
    """Return a directory for this release's compiled kernels, created and filled if possible; None if there is none.

    The candidates in order: NUMBA_CACHE_DIR, the directory next to the sources that an installation fills, the user's
    cache directory, the directory for temporary files. Kernels compiled by a read-only installation are copied.
    """
    key = compute_kernels_key(kernels)
    installed = kernels / "__pycache__" / f"compiled-{key}"
    for root in _list_roots(environ, installed.parent):
        directory = root / f"compiled-{key}"
        if _prepare(directory, installed):
            _drop_unused(directory)
            return directory
    return None


def is_cache_warm(directory: Path | None) -> bool:
    """Return whether every kernel has been compiled into the directory."""
    return directory is not None and (directory / _WARM).exists()


def count_compiled_kernels(directory: Path, kernels: Path = KERNELS) -> tuple[int, int]:
    """Return how many kernels have been compiled into the directory, and how many there are."""
    # Numba writes one index file for each function.
    compiled = sum(1 for _ in directory.rglob("*.nbi"))
    return compiled, sum(len(_KERNEL.findall(path.read_text())) for path in kernels.rglob("*.py"))


def mark_cache_warm(directory: Path) -> None:
    """Record that every kernel is in the directory, and that it is in use."""
    try:
        (directory / _WARM).touch()
    except OSError:
        # The disk is full: the next process compiles the missing kernels.
        return


def _list_roots(environ: Mapping[str, str], installed: Path) -> Iterator[Path]:
    if chosen := environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen)
    yield installed
    home = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    if os.path.isabs(home):
        yield Path(home) / "cruise"
    yield Path(tempfile.gettempdir()) / f"cruise-{os.getuid()}"


def _prepare(directory: Path, filled: Path) -> bool:
    """Create a directory, with the kernels of another if it can be read; return whether it may be used."""
    try:
        directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not directory.exists():
            # If the installation cannot be read, the kernels are compiled again.
            with suppress(OSError):
                if filled != directory and _is_writable_by_owner_only(filled, filled.parents[1].stat().st_uid):
                    _copy(filled, directory)
        directory.mkdir(mode=0o755, exist_ok=True)
        if not (
            _is_writable_by_owner_only(directory.parent, os.getuid())
            and _is_writable_by_owner_only(directory, os.getuid())
        ):
            return False
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True


def _is_writable_by_owner_only(directory: Path, owner: int) -> bool:
    """Return whether only the owner can write the directory: kernels are code."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o022


def _copy(source: Path, target: Path) -> None:
    """Copy atomically: another process may copy as well."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        shutil.copytree(source, Path(scratch) / "copy", copy_function=shutil.copyfile)
        try:
            os.rename(Path(scratch) / "copy", target)
        except OSError:
            if not target.is_dir():
                raise


def _drop_unused(directory: Path) -> None:
    """Remove the directories of other releases that were not used for a month."""
    for other in [path for path in directory.parent.glob("compiled-*") if path != directory]:
        try:
            used = max(path.stat().st_mtime for path in (other, other / _WARM) if path.exists())
        except (OSError, ValueError):
            continue
        # File times are wall-clock times.
        if time.clock_gettime(time.CLOCK_REALTIME) - used > _UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _describe_compiler() -> str:
    try:
        return f"{version('numba')} {version('llvmlite')}"
    except PackageNotFoundError:
        return ""


def _describe_processor() -> str:
    """Return the processor's model and features: a home directory may be shared by different machines."""
    wanted = ("model name", "flags", "CPU part", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
