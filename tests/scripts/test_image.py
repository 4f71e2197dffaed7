"""The image contains only pinned files, starts nothing else, and is reproducible."""

import hashlib
import json
import re
import tarfile
from pathlib import Path

import pytest

from scripts.image.debian import fetch, read_pins
from scripts.image.layout import write_layout
from scripts.image.root import HOME, find_unneeded

ROOT = Path(__file__).parents[2]
LABELS = {"org.opencontainers.image.version": "1.0"}
CONFIG = {"os": "linux", "architecture": "amd64", "config": {"Labels": LABELS}}


@pytest.fixture
def root(tmp_path):
    """A root file system with a program and a directory that may be written."""
    root = tmp_path / "root"
    for directory in (root / "data", root / HOME / "bin", root / "usr/bin"):
        directory.mkdir(parents=True)
    for program in (root / HOME / "bin/cruise", root / "usr/bin/python3.11"):
        program.write_text("#!\n")
        program.chmod(0o755)
    return root


def every_path(root: Path) -> list[Path]:
    return [path.relative_to(root) for path in root.rglob("*")]


def blob(out: Path, descriptor: dict[str, str]) -> Path:
    return out / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")


def test_every_package_is_pinned_by_version_and_hash():
    packages = read_pins(ROOT / "deploy/image-packages.txt")
    assert len({package.name for package in packages}) == len(packages)
    assert [one for one in packages if not one.version or not re.fullmatch(r"[0-9a-f]{64}", one.sha256)] == []


def test_a_package_that_differs_from_its_pin_ends_it_and_is_not_kept(tmp_path):
    pins = tmp_path / "pins.txt"
    pins.write_text(f"libc6:amd64=1:2.0 sha256:{hashlib.sha256(b'as pinned').hexdigest()}\n")
    (package,) = read_pins(pins)
    file = tmp_path / "libc6_1%3a2.0_amd64.deb"
    file.write_bytes(b"as pinned")
    assert fetch([package], tmp_path) == [file]
    file.write_bytes(b"another one")
    with pytest.raises(SystemExit, match="is not what was pinned"):
        fetch([package], tmp_path)
    assert not file.exists()


def test_a_shell_an_installer_and_rights_of_others_are_found(root):
    assert find_unneeded(root) == []
    for name in ("bin/sh", "usr/bin/env", "opt/cruise/lib/pip/__init__.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / HOME / "bin/cruise").chmod(0o4755)
    assert find_unneeded(root) == [
        "bin/sh",
        "opt/cruise/bin/cruise runs as its owner",
        "opt/cruise/lib/pip",
        "usr/bin/env",
    ]


def test_the_same_files_make_the_same_image_whenever_and_by_whomever(root, tmp_path):
    first = write_layout(root, [every_path(root)], CONFIG, tmp_path / "first")
    (root / HOME / "bin/cruise").touch()
    second = write_layout(root, [every_path(root)[::-1]], CONFIG, tmp_path / "second")
    assert first == second
    (root / HOME / "bin/cruise").write_text("#!changed\n")
    assert write_layout(root, [every_path(root)], CONFIG, tmp_path / "third") != first


def test_a_layout_names_each_blob_by_its_digest_and_only_data_is_the_users(root, tmp_path):
    out = tmp_path / "image"
    digest = write_layout(root, [every_path(root)], CONFIG, out)
    assert json.loads((out / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads((out / "index.json").read_text())["manifests"]
    assert named["digest"] == digest
    manifest = json.loads(blob(out, named).read_text())
    config = json.loads(blob(out, manifest["config"]).read_text())
    (layer,) = manifest["layers"]
    for descriptor in (named, manifest["config"], layer):
        content = blob(out, descriptor).read_bytes()
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
        assert len(content) == descriptor["size"]
    with tarfile.open(blob(out, layer)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert set(entries) == {str(path) for path in every_path(root)}
    assert {name for name, entry in entries.items() if entry.uid or entry.gid} == {"data"}
    assert entries["data"].uid == 65532
    assert config["rootfs"]["diff_ids"] and manifest["annotations"] == LABELS
