"""Writes a reproducible OCI image layout: sorted files, one time, numeric owners, no user names."""

import gzip
import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_TIME = 0  # of every file: layers that are the same in two releases are pulled once
WRITABLE = "data"  # the only directory that is not root's
OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Layer:
    """A blob in the layout, and the digest of its unpacked content for the configuration."""

    descriptor: dict[str, Any]
    diff_id: str


def write_layout(root: Path, groups: Iterable[list[Path]], config: Mapping[str, Any], out: Path) -> str:
    """Write `root` as layers of these paths, relative to it; return the digest of the manifest."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "blobs/sha256").mkdir(parents=True)
    layers = [_write_layer(root, paths, out) for paths in groups]
    whole = {**config, "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": _write_json(whole, f"{OCI}.config.v1+json", out),
        "layers": [layer.descriptor for layer in layers],
        "annotations": config["config"]["Labels"],
    }
    described = _write_json(manifest, f"{OCI}.manifest.v1+json", out)
    platform = {"os": config["os"], "architecture": config["architecture"]}
    version = config["config"]["Labels"]["org.opencontainers.image.version"]
    named = {**described, "platform": platform, "annotations": {"org.opencontainers.image.ref.name": version}}
    index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [named]}
    (out / "index.json").write_text(json.dumps(index, sort_keys=True))
    (out / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    digest: str = described["digest"]
    return digest


def _write_json(value: Mapping[str, Any], media_type: str, out: Path) -> dict[str, Any]:
    text = json.dumps(value, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    (out / "blobs/sha256" / digest).write_bytes(text)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(text)}


def _write_layer(root: Path, paths: list[Path], out: Path) -> Layer:
    plain, packed = out / "layer.tar", out / "layer.tar.gz"

    def settled(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 65532 if entry.name == WRITABLE else 0
        entry.uname = entry.gname = ""
        entry.mtime = FILE_TIME
        return entry

    with tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(paths):
            tar.add(root / path, str(path), recursive=False, filter=settled)
    with plain.open("rb") as source, packed.open("wb") as target:
        with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=6) as gzipped:
            shutil.copyfileobj(source, gzipped)
    diff_id = _digest(plain)
    digest, size = _digest(packed), packed.stat().st_size
    plain.unlink()
    packed.rename(out / "blobs/sha256" / digest.removeprefix("sha256:"))
    return Layer({"mediaType": f"{OCI}.layer.v1.tar+gzip", "digest": digest, "size": size}, diff_id)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
