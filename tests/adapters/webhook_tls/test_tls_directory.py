"""Certificate files are replaced atomically, and keys are readable by their owner only."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cruise.adapters.webhook_tls.certificate_keeper import AUTHORITIES, CERTIFICATE, KEY, NEXT_KEY, TlsDirectory
from cruise.errors import BadInputError, ConflictError

FILES = {CERTIFICATE: b"certificate", KEY: b"key", AUTHORITIES: b"authorities"}


async def test_a_directory_that_is_not_there_is_empty_and_is_made(tmp_path):
    place = TlsDirectory(tmp_path / "a" / "tls")
    kept = await place.read()
    assert kept.is_empty
    await place.write(FILES, kept.version)
    assert (await place.read()).files == FILES
    assert (tmp_path / "a" / "tls").stat().st_mode & 0o777 == 0o700


async def test_a_certificate_whose_key_is_about_to_be_written_is_read_with_it(tmp_path):
    """`cruise webhook` ended if it looked between the two files of `cruise certificates`."""
    place = TlsDirectory(tmp_path)
    (tmp_path / CERTIFICATE).write_bytes(b"certificate")
    reading = asyncio.ensure_future(place.read())
    await asyncio.sleep(0.01)
    (tmp_path / KEY).write_bytes(b"key")
    assert (await reading).files == {CERTIFICATE: b"certificate", KEY: b"key"}


async def test_only_the_owner_may_read_a_key(tmp_path):
    place = TlsDirectory(tmp_path)
    await place.write(FILES | {NEXT_KEY: b"next"}, (await place.read()).version)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {CERTIFICATE: 0o644, AUTHORITIES: 0o644, KEY: 0o600, NEXT_KEY: 0o600}


async def test_deletes_expired_readings(tmp_path):
    place = TlsDirectory(tmp_path)
    await place.write(FILES | {NEXT_KEY: b"next"}, (await place.read()).version)
    (tmp_path / "notes.txt").write_text("mine")
    await place.write(FILES, (await place.read()).version)
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "notes.txt"}


async def test_a_change_in_between_is_a_conflict(tmp_path):
    place = TlsDirectory(tmp_path)
    version = (await place.read()).version
    (tmp_path / CERTIFICATE).write_bytes(b"other")
    with pytest.raises(ConflictError):
        await place.write(FILES, version)
    assert (tmp_path / CERTIFICATE).read_bytes() == b"other"


async def test_a_reader_never_sees_half_a_file(tmp_path):
    place = TlsDirectory(tmp_path)
    texts = [bytes([letter]) * 200_000 for letter in b"ab"]
    await place.write({CERTIFICATE: texts[0], KEY: b"k"}, (await place.read()).version)
    seen, stop = set(), threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add((tmp_path / CERTIFICATE).read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(30):
        await place.write({CERTIFICATE: texts[turn % 2], KEY: b"k"}, (await place.read()).version)
    stop.set()
    reader.join()
    assert seen <= set(texts)


async def test_a_mounted_secret_is_read_through_its_links_and_followed(tmp_path):
    for version in ("1", "2"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / CERTIFICATE).write_text(version)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / CERTIFICATE).symlink_to(f"..data/{CERTIFICATE}")
    place = TlsDirectory(tmp_path)
    first = await place.read()
    (tmp_path / "swap").symlink_to("..2")
    (tmp_path / "swap").rename(tmp_path / "..data")
    second = await place.read()
    assert (first.files, second.files) == ({CERTIFICATE: b"1"}, {CERTIFICATE: b"2"})
    assert first.version != second.version


@pytest.mark.parametrize(
    ("arrange", "words"),
    [
        (lambda path: (path / CERTIFICATE).mkdir(parents=True), "cannot be read: Is a directory"),
        (lambda path: path.write_text("a file"), "cannot be read: Not a directory"),
    ],
)
async def test_reports_an_unreadable_answer(tmp_path, arrange, words):
    directory = tmp_path / "tls"
    arrange(directory)
    with pytest.raises(BadInputError, match=f"{directory}/tls.crt {words}"):
        await TlsDirectory(directory).read()


def test_reports_a_directory_of_another_user(tmp_path):
    """In a process of another user, as root may read everything."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    closed = Path("/tmp") / f"cruise-closed-{os.getpid()}"
    closed.mkdir(mode=0o700)
    (closed / CERTIFICATE).write_text("x")
    program = (
        "import asyncio, os, pathlib\n"
        "from cruise.adapters.webhook_tls.certificate_keeper import TlsDirectory\n"
        "os.setuid(65534)\n"
        f"asyncio.run(TlsDirectory(pathlib.Path({str(closed)!r})).read())\n"
    )
    try:
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    finally:
        (closed / CERTIFICATE).unlink()
        closed.rmdir()
    assert f"BadInputError: {closed}/tls.crt cannot be read: Permission denied" in told.stderr


async def test_reports_a_directory_that_is_not_writable(tmp_path):
    (tmp_path / "file").write_text("x")
    place = TlsDirectory(tmp_path / "file" / "tls")
    with pytest.raises(BadInputError, match="cannot be read: Not a directory"):
        await place.read()
    directory = tmp_path / "tls"
    place = TlsDirectory(directory)
    version = (await place.read()).version
    (tmp_path / "tls").symlink_to(tmp_path / "nowhere" / "at-all")
    with pytest.raises(BadInputError, match="no certificate can be stored"):
        await place.write(FILES, version)
