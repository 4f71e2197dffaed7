"""Makes the image without a daemon or root: `python -m scripts.image make`; `pin` pins Debian's present packages.

Writes to dist/: image (an OCI layout), image.cdx.json (its bill of materials), image.provenance.json (its provenance).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.image.debian import Package, fetch, pin, read_pins
from scripts.image.layout import write_layout
from scripts.image.root import (
    ENVIRONMENT,
    HOME,
    PACKAGES,
    USER,
    add_packages,
    compile_inside,
    find_unneeded,
    make_debian,
    make_postgres,
    normalise,
    remove_unneeded,
    try_inside,
)
from scripts.provenance import CHECKOUT, PINS, build_statement, describe_commit, git
from scripts.sbom import Bill, bill_of_application, write

PACKAGE_PINS = CHECKOUT / "deploy/image-packages.txt"
REQUIREMENTS = CHECKOUT / "requirements-cloud.txt"
FOR_THE_BUILD = "dash"  # initdb runs it once; it stays out of the image


def image_config(version: str, commit: str, created: str) -> dict[str, Any]:
    """Return the configuration, without the layers."""
    labels = {
        "title": "cruise",
        "description": "Continuous rightsizing of Kubernetes pods",
        "licenses": "Apache-2.0",
        "version": version,
        "revision": commit,
        "created": created,
    }
    return {
        "created": created,
        "os": "linux",
        "architecture": "amd64",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "Entrypoint": ["cruise"],
            "Cmd": ["--help"],
            "WorkingDir": "/data",
            "Volumes": {"/data": {}},
            "ExposedPorts": {"8080/tcp": {}, "8443/tcp": {}},
            "Labels": {f"org.opencontainers.image.{name}": value for name, value in labels.items()},
        },
    }


def bill_of_image(root: Path, packages: list[Package]) -> Bill:
    """Return the bill of materials of the image, with Debian's packages and their licences."""
    bill = bill_of_application(root / PACKAGES, REQUIREMENTS)
    bill["metadata"]["component"]["type"] = "container"
    for package in packages:
        copied = root / "usr/share/doc" / package.name / "copyright"
        text = copied.read_text(errors="replace") if copied.exists() else ""
        licences = sorted(set(re.findall(r"^License: *(\S.*?) *$", text, re.MULTILINE)))
        bill["components"].append(
            {
                "type": "library",
                "bom-ref": package.purl,
                "purl": package.purl,
                "name": package.name,
                "version": package.version,
                "hashes": [{"alg": "SHA-256", "content": package.sha256}],
                "licenses": [{"license": {"name": name}} for name in licences],
            }
        )
    return bill


def make(uv: Path, wheels: Path, out: Path, cache: Path) -> None:
    """Make the image of the commit that is checked out, from its wheel."""
    commit, created = describe_commit(), git("log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ")
    packages = read_pins(PACKAGE_PINS)
    files = dict(zip([package.name for package in packages], fetch(packages, cache), strict=True))
    shell = files.pop(FOR_THE_BUILD)
    kept = [package for package in packages if package.name != FOR_THE_BUILD]
    (wheel,) = wheels.glob("cruise-*.whl")
    root = out / "root"
    subprocess.run(["rm", "-rf", root], check=True)
    root.mkdir(parents=True)
    make_debian(root, list(files.values()))
    debian = {path.relative_to(root) for path in root.rglob("*")}
    add_packages(root, uv, REQUIREMENTS, wheel)
    make_postgres(root, shell)
    remove_unneeded(root)
    normalise(root)
    compile_inside(root)
    normalise(root)
    if found := find_unneeded(root):
        sys.exit(f"image: these do not belong in it: {', '.join(found)}")
    (root / "data").mkdir(mode=0o700)
    (root / "tmp").chmod(0o1777)
    paths = [path.relative_to(root) for path in root.rglob("*")]
    # A separate layer for files that differ each time (kernels, initdb's identifier), so that the other layers do not.
    groups: dict[str, list[Path]] = {"debian": [], "packages": [], "made": [], "cruise": []}
    for path in paths:
        if path in debian:
            groups["debian"].append(path)
        elif path.is_relative_to(HOME / "postgres") or any(part.startswith("compiled-") for part in path.parts):
            groups["made"].append(path)
        else:
            of_cruise = path == HOME / "bin/cruise" or re.match(rf"{PACKAGES}/cruise(-|/|$)", str(path))
            groups["cruise" if of_cruise else "packages"].append(path)
    try_inside(root)
    version = wheel.name.split("-")[1]
    digest = write_layout(root, groups.values(), image_config(version, commit, created), out / "image")
    write(bill_of_image(root, kept), out / "image.cdx.json")
    debian_packages = [{"uri": package.purl, "digest": {"sha256": package.sha256}} for package in packages]
    subject = {"cruise": digest.removeprefix("sha256:")}
    pins = (str(PACKAGE_PINS.relative_to(CHECKOUT)), *PINS)
    statement = build_statement("image", subject, pins, debian_packages)
    (out / "image.provenance.json").write_text(json.dumps(statement, indent=1, sort_keys=True) + "\n")
    unpacked = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_symlink() and path.is_file())
    packed = sum(path.stat().st_size for path in (out / "image/blobs/sha256").iterdir())
    print(
        f"image: {out / 'image'}, {digest}, {packed / 1e6:.0f} MB, unpacked {unpacked / 1e6:.0f} MB, {len(paths)} files"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts.image", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pin")
    making = commands.add_parser("make")
    for name in ("uv", "wheels", "out", "cache"):
        making.add_argument(f"--{name}", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.command == "pin":
        with tempfile.TemporaryDirectory() as scratch:
            pin(PACKAGE_PINS, Path(scratch))
        sys.exit()
    make(chosen.uv, chosen.wheels, chosen.out.absolute(), chosen.cache)
