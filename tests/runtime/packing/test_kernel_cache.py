import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from cruise.runtime.packing.kernel_cache import (
    choose_cache_directory,
    compute_kernels_key,
    count_compiled_kernels,
    is_cache_warm,
    mark_cache_warm,
)
from cruise.runtime.packing.solver_process import build_process_command
from tests.kept_kernels import PLACE, cache_kernels


@pytest.fixture
def kernels(tmp_path):
    directory = tmp_path / "kernels"
    directory.mkdir()
    (directory / "pricing.py").write_text("price = 1\n")
    (directory / "clock.py").write_text("tick = 1\n")
    return directory


def test_the_path_that_the_user_states_takes_precedence(tmp_path, kernels):
    chosen = choose_cache_directory({"NUMBA_CACHE_DIR": str(tmp_path / "mine")}, kernels)
    assert chosen == tmp_path / "mine" / f"compiled-{compute_kernels_key(kernels)}"
    assert chosen is not None and chosen.is_dir()


def test_next_to_the_sources_if_that_directory_is_writable(kernels):
    assert choose_cache_directory({}, kernels) == kernels / "__pycache__" / f"compiled-{compute_kernels_key(kernels)}"


def test_a_changed_source_is_another_release_even_where_only_a_called_kernel_changed(kernels):
    before = choose_cache_directory({}, kernels)
    (kernels / "clock.py").write_text("tick = 2\n")
    assert choose_cache_directory({}, kernels) != before


def test_a_read_only_install_is_copied_to_the_users_cache(tmp_path, kernels):
    filled = choose_cache_directory({}, kernels)
    assert filled is not None
    (filled / "pricing.nbi").write_text("compiled")
    mark_cache_warm(filled)
    home = tmp_path / "home"
    unwritable(kernels)
    found = choose_cache_directory({"HOME": str(home)}, kernels)
    assert found == home / ".cache" / "cruise" / filled.name
    assert found is not None
    assert (found / "pricing.nbi").read_text() == "compiled"
    assert is_cache_warm(found)


def unwritable(kernels: Path) -> None:
    """Make an installation one that cannot be written: no mode does that for root, so it becomes a stranger's."""
    for path in (kernels, *kernels.rglob("*")):
        if os.getuid() == 0:
            os.chown(path, 12345, 12345)
        elif path.is_dir():
            path.chmod(0o555)


def test_what_others_could_have_compiled_is_not_copied(tmp_path, kernels):
    filled = choose_cache_directory({}, kernels)
    assert filled is not None
    (filled / "pricing.nbi").write_text("compiled by whom?")
    filled.chmod(0o777)
    found = choose_cache_directory({"HOME": str(tmp_path / "home")}, kernels)
    assert found is not None
    assert found != filled
    assert list(found.iterdir()) == []


def test_a_directory_that_others_can_write_is_not_used(tmp_path, kernels):
    mine = tmp_path / "mine" / f"compiled-{compute_kernels_key(kernels)}"
    mine.mkdir(parents=True)
    mine.chmod(0o777)
    assert choose_cache_directory({"NUMBA_CACHE_DIR": str(tmp_path / "mine")}, kernels) != mine


def test_a_directory_where_others_could_put_another_is_not_used(tmp_path, kernels):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    found = choose_cache_directory({"NUMBA_CACHE_DIR": str(theirs)}, kernels)
    assert found is not None
    assert found.parent != theirs


def test_any_user_can_read_kernels_that_an_installation_compiled(kernels):
    found = choose_cache_directory({}, kernels)
    assert found is not None
    assert found.stat().st_mode & 0o055 == 0o055


def test_without_any_place_there_is_no_cache(tmp_path, kernels, monkeypatch):
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    shutil.rmtree(kernels / "__pycache__", ignore_errors=True)
    (kernels / "__pycache__").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(nowhere))
    assert choose_cache_directory({"NUMBA_CACHE_DIR": str(nowhere), "HOME": str(nowhere)}, kernels) is None
    assert not is_cache_warm(None)


def test_it_is_warm_once_marked(kernels):
    found = choose_cache_directory({}, kernels)
    assert found is not None
    assert not is_cache_warm(found)
    mark_cache_warm(found)
    assert is_cache_warm(found)


def test_caches_unused_for_a_month_are_deleted(kernels):
    found = choose_cache_directory({}, kernels)
    assert found is not None
    old, recent = found.parent / "compiled-old", found.parent / "compiled-recent"
    for directory, days in ((old, 40), (recent, 3)):
        directory.mkdir()
        mark_cache_warm(directory)
        then = found.stat().st_mtime - days * 86400
        for path in (directory / "warm", directory):
            os.utime(path, (then, then))
    choose_cache_directory({}, kernels)
    assert not old.exists()
    assert recent.exists()


def test_compiled_kernels_are_counted_by_the_compilers_indexes(kernels, tmp_path):
    (kernels / "more.py").write_text("@compile_kernel\ndef one(): ...\n\n\n@compile_inline\ndef two(): ...\n")
    (tmp_path / "cache" / "more_1").mkdir(parents=True)
    (tmp_path / "cache" / "more_1" / "more.one-1.py311.nbi").touch()
    assert count_compiled_kernels(tmp_path / "cache", kernels) == (1, 2)


def test_a_compiler_whose_parent_is_gone_ends(tmp_path):
    compiler = subprocess.Popen(
        build_process_command("compile_column_kernels"),
        stdin=subprocess.PIPE,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    )
    assert compiler.stdin is not None
    compiler.stdin.close()
    assert compiler.wait() == 0
    compiled, kernels = count_compiled_kernels(tmp_path)
    assert compiled < kernels


def test_what_tests_compiled_is_kept_after_their_checkout_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "first"))
    cache = choose_cache_directory(os.environ)
    assert cache is not None
    (cache / PLACE).mkdir(exist_ok=True)
    (cache / PLACE / "mine.nbi").write_text("compiled")
    mark_cache_warm(cache)
    cache_kernels("keep", tmp_path / "kept")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "second"))
    fresh = choose_cache_directory(os.environ)
    assert fresh is not None
    # It may have been filled from outside the sources.
    shutil.rmtree(fresh)
    fresh.mkdir()
    cache_kernels("fetch", tmp_path / "kept")
    assert is_cache_warm(fresh)
    assert (fresh / PLACE / "mine.nbi").read_text() == "compiled"
