"""Bills of materials, CycloneDX 1.6: of the application from installed and pinned packages, and of an image.

Components with licences and dependencies come from installed packages; hashes come from the requirement files and are
those of all files that an installation accepts.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parent.parent
Bill = dict[str, Any]


def normal(name: str) -> str:
    """Return a package's name as requirement files spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(requirements: Path) -> dict[tuple[str, str], list[str]]:
    """Return the accepted SHA-256 hashes by name and version, from a requirement file."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in requirements.read_text().splitlines():
        if pin := re.match(r"([a-z0-9.-]+)==([^ ]+)", line):
            found[pin[1], pin[2]] = []
        elif hashed := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            found[next(reversed(found))].append(hashed[1])
    return found


def bill_of_application(packages: Path, requirements: Path) -> Bill:
    """Describe cruise and its packages, pinned in `requirements` and installed in `packages`."""
    with tempfile.TemporaryDirectory() as scratch:
        # cyclonedx-py runs an interpreter for its path only; this one prints the directory.
        interpreter, out = Path(scratch) / "python", Path(scratch) / "bill.json"
        interpreter.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps([str(packages)]))})\n")
        interpreter.chmod(0o755)
        command = [str(Path(sys.executable).parent / "cyclonedx-py"), "environment", "--spec-version", "1.6"]
        command += ["--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(out)]
        subprocess.run([*command, str(interpreter)], check=True)
        bill: Bill = json.loads(out.read_text())
    accepted = pins(requirements)
    kept, names = [], {name for name, _ in accepted}
    for component in bill["components"]:
        name, version = normal(component["name"]), component["version"]
        if name not in names:
            continue
        if (name, version) not in accepted:
            sys.exit(f"sbom: {name} {version} is installed, {requirements.name} pins another version: run make install")
        hashes = [{"alg": "SHA-256", "content": content} for content in accepted[name, version]]
        accepting = {
            "type": "distribution",
            "url": component["purl"],
            "comment": f"files that {requirements.name} accepts",
        }
        component.setdefault("externalReferences", []).append({**accepting, "hashes": hashes})
        kept.append(component)
    known = {component["bom-ref"] for component in kept} | {"root-component"}
    bill["components"] = kept
    bill["dependencies"] = [
        {**one, "dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in known]}
        for one in bill["dependencies"]
        if one["ref"] in known
    ]
    version = re.search(r'__version__ = "(.+)"', (ROOT / "cruise" / "__init__.py").read_text())
    assert version
    bill["metadata"]["component"]["version"] = version[1]
    return bill


def write(bill: Bill, path: Path) -> None:
    """Write a bill; exit if the schema rejects it."""
    text = json.dumps(bill, indent=1, sort_keys=True) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"sbom: not CycloneDX 1.6: {error}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"sbom: {path}, {len(bill['components'])} components")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=Path, help="the directory that the packages are installed in")
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    write(bill_of_application(chosen.packages, ROOT / "requirements.txt"), chosen.out)
