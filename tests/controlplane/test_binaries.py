"""If the control plane cannot be built, the reason is reported in one line."""

from pathlib import Path

import pytest

from tests.controlplane import binaries


def old_go(directory: Path) -> Path:
    """A Go toolchain that is too old."""
    go = directory / "go"
    go.write_text("#!/bin/sh\necho go1.19.8\n")
    go.chmod(0o755)
    return directory


def only(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setattr(binaries, "GO_PLACES", ())
    monkeypatch.setenv("PATH", str(directory))


def test_a_missing_go_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    only(monkeypatch, tmp_path)
    with pytest.raises(binaries.NotAvailable, match=r"^it needs Go 1\.26 or newer, found none$"):
        binaries.programs()


def test_an_old_go_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    only(monkeypatch, old_go(tmp_path))
    with pytest.raises(binaries.NotAvailable, match=r"^it needs Go 1\.26 or newer, found go1\.19\.8$"):
        binaries.build()


def test_what_is_not_built_is_said_and_not_built_by_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.99.0\n")
    go.chmod(0o755)
    only(monkeypatch, tmp_path)
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    with pytest.raises(binaries.NotAvailable, match="not built"):
        binaries.programs()
    assert not (tmp_path / "cache").exists()


def test_failed_build_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(
        "#!/bin/sh\n[ $1 = env ] && echo go1.99.0 && exit\necho first >&2\necho no way >&2\nexit 1\n"
    )
    (tools / "nice").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    only(monkeypatch, tools)
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    with pytest.raises(binaries.NotAvailable, match=r"^no way$"):
        binaries.build()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_the_version_is_the_modules():
    assert binaries.kubernetes_minor() == "1.36"
