"""Debian's packages of the image: pinned by version and SHA-256, fetched by apt, unpacked without being installed.

Package scripts and dpkg do not run. apt verifies the archive's signature when a hash is pinned; files that are fetched
later must match that hash, from any mirror or snapshot.
"""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURE = "amd64"


@dataclass(frozen=True, slots=True)
class Package:
    """One line of deploy/image-packages.txt."""

    name: str
    architecture: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The file name that apt downloads to."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:deb/debian/{self.name}@{self.version}?arch={self.architecture}&distro=debian-12"


def read_pins(path: Path) -> list[Package]:
    """Read `NAME:ARCHITECTURE=VERSION sha256:HASH`, one package per line."""
    packages = []
    for line in path.read_text().splitlines():
        pinned, _, digest = line.partition(" sha256:")
        name_and_architecture, _, version = pinned.partition("=")
        name, _, architecture = name_and_architecture.partition(":")
        packages.append(Package(name, architecture, version, digest))
    return packages


def download(what: str, into: Path) -> None:
    """Download one package from apt's sources; exit if they do not have it."""
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", what]
    done = subprocess.run(command, cwd=into, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"image: {what} cannot be fetched: {done.stderr.strip().splitlines()[-1]}\n"
            "image: run apt-get update; where it was replaced, add its snapshot to apt's sources, or make image-lock"
        )


def fetch(packages: list[Package], cache: Path) -> list[Path]:
    """Return the file of each package; exit if one does not match its pinned hash."""
    cache.mkdir(parents=True, exist_ok=True)
    files = []
    for package in packages:
        file = cache / package.file_name
        if not file.exists():
            download(f"{package.name}:{ARCHITECTURE}={package.version}", cache)
        if (found := hashlib.sha256(file.read_bytes()).hexdigest()) != package.sha256:
            file.unlink()
            sys.exit(f"image: {file.name} is not what was pinned: sha256 {found}, not {package.sha256}")
        files.append(file)
    return files


def pin(path: Path, scratch: Path) -> None:
    """Pin apt's present versions of the packages in the file."""
    lines = []
    for package in read_pins(path):
        before = set(scratch.iterdir())
        download(f"{package.name}:{ARCHITECTURE}", scratch)
        (file,) = set(scratch.iterdir()) - before
        version = file.name.split("_")[1].replace("%3a", ":")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(f"{package.name}:{package.architecture}={version} sha256:{digest}\n")
    path.write_text("".join(lines))


def unpack(file: Path, root: Path) -> None:
    """Unpack a package's files, and register it for scanners of images without dpkg."""
    subprocess.run(["dpkg-deb", "--extract", file, root], check=True)
    control = subprocess.run(["dpkg-deb", "--field", file], capture_output=True, text=True, check=True).stdout
    status = root / "var/lib/dpkg/status.d" / file.name.split("_")[0]
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(control)
