"""Snapshot and usage files, read from disk and through a pipe."""

import gc
import gzip
import io
import json
import random
import sys
from pathlib import Path

import pytest

from cruise.adapters.files import load_snapshot, load_usage, read_chunks
from cruise.errors import BadInputError
from tests.builders import NOW, make_list_json, make_node_json, make_pod_json, make_usage_item_json, make_usage_json

CLUSTER = json.dumps(make_list_json(make_node_json(), make_pod_json()), indent=4).encode()
USAGE = json.dumps(make_usage_json(make_usage_item_json())).encode()


def get_error(path: Path | str) -> str:
    with pytest.raises(BadInputError) as refused:
        load_snapshot(str(path))
    return str(refused.value)


def test_a_snapshot_and_its_usage(tmp_path):
    (tmp_path / "cluster.json").write_bytes(CLUSTER)
    (tmp_path / "usage.json").write_bytes(USAGE)
    snapshot = load_snapshot(str(tmp_path / "cluster.json"))
    table, now = load_usage(str(tmp_path / "usage.json"), snapshot)
    assert (len(snapshot.pods), len(table.keys), now) == (1, 1, NOW)
    assert gc.isenabled()


@pytest.mark.parametrize("name", ["cluster.json.gz", "cluster.json"])
def test_gzip_is_known_by_content_not_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(CLUSTER))
    assert len(load_snapshot(str(tmp_path / name)).pods) == 1


def test_plain_text_may_be_called_gz(tmp_path):
    (tmp_path / "cluster.json.gz").write_bytes(CLUSTER)
    assert len(load_snapshot(str(tmp_path / "cluster.json.gz")).pods) == 1


@pytest.mark.parametrize("content", [CLUSTER, gzip.compress(CLUSTER)], ids=["plain", "gzip"])
def test_standard_input(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert len(load_snapshot("-").pods) == 1


def test_an_error_names_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(BadInputError, match=r"^standard input: empty"):
        load_snapshot("-")


def test_large_gzip_data_of_several_members_is_decompressed_completely(tmp_path):
    # Noise hardly shrinks and zeros shrink a thousandfold, so that both ends of a member fall anywhere in a chunk.
    content = random.Random(1).randbytes(3_000_000) + bytes(20_000_000) + b"end"
    (tmp_path / "f").write_bytes(gzip.compress(content[:5_000_000]) + gzip.compress(content[5_000_000:]) + bytes(512))
    chunks = list(read_chunks(str(tmp_path / "f")))
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= 1 << 20


def test_files_that_cannot_be_read(tmp_path):
    assert get_error(tmp_path / "none.json") == f"{tmp_path}/none.json: no such file"
    assert get_error(tmp_path) == f"{tmp_path}: is a directory; give a file"
    assert get_error("") == "an empty name: is not a file name"
    (tmp_path / "empty.json").touch()
    assert get_error(tmp_path / "empty.json").startswith(f"{tmp_path}/empty.json: empty")
    assert gc.isenabled()


def test_damaged_gzip_data(tmp_path):
    packed = gzip.compress(random.Random(1).randbytes(100_000))
    file = tmp_path / "cluster.json.gz"
    file.write_bytes(gzip.compress(CLUSTER)[:-4])
    assert get_error(file) == f"{file}: is gzip that ends early; create it again"
    file.write_bytes(gzip.compress(CLUSTER)[:-6] + b"\0\0\0\0\0\0")
    assert get_error(file).startswith(f"{file}: is damaged gzip (")
    file.write_bytes(packed[:30] + b"\xff" * 400 + packed[430:])
    assert get_error(file).startswith(f"{file}: ")
    file.write_bytes(gzip.compress(CLUSTER) + b"more")
    assert get_error(file).startswith(f"{file}: is damaged gzip (")


def test_rejects_an_unknown_pod_in_a_usage_file(tmp_path):
    (tmp_path / "cluster.json").write_bytes(CLUSTER)
    (tmp_path / "usage.json").write_bytes(json.dumps(make_usage_json(make_usage_item_json("gone"))).encode())
    snapshot = load_snapshot(str(tmp_path / "cluster.json"))
    with pytest.raises(
        BadInputError, match=r"usage\.json: items\[0\] \(shop/gone app\): pod: the snapshot has no such pod"
    ):
        load_usage(str(tmp_path / "usage.json"), snapshot)
