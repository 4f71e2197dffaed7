"""Compiled kernels kept between checkouts: `fetch DIRECTORY` before compilation, `keep DIRECTORY` after it."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from numba.core.caching import UserProvidedCacheLocator

from cruise.runtime.packing.kernel_cache import KERNELS, choose_cache_directory, is_cache_warm, mark_cache_warm

# The compiler looks below its cache for a directory that is named by where the sources are.
PLACE = UserProvidedCacheLocator.get_suitable_cache_subpath(str(KERNELS / "clock.py"))


def cache_kernels(task: str, directory: Path) -> None:
    """Copy, whole or not at all, unless it is there already."""
    cache = choose_cache_directory(os.environ)
    if cache is None:
        return
    here, kept = cache / PLACE, directory / cache.name
    if task == "fetch" and kept.exists() and not is_cache_warm(cache):
        shutil.rmtree(here, ignore_errors=True)
        _copy(kept, here)
        mark_cache_warm(cache)
    if task == "keep" and is_cache_warm(cache) and not kept.exists():
        # Other releases' kernels are of no use any more.
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        _copy(here, kept)


def _copy(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        shutil.copytree(source, Path(scratch) / "copy", copy_function=shutil.copyfile)
        (Path(scratch) / "copy").rename(target)


if __name__ == "__main__":
    cache_kernels(sys.argv[1], Path(sys.argv[2]))
