"""Makes the plugin's archive and manifest for krew in dist/: `python -m scripts.krew URL`, with the archive's URL."""

import hashlib
import io
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

from cruise import __version__

ROOT = Path(__file__).parent.parent
ARCHIVE = "kubectl-cruise.tar.gz"
MANIFEST = "cruise.yaml"


def make(uri: str, directory: Path) -> None:
    """Write archive and manifest; the same version gives the same bytes."""
    archive = directory / ARCHIVE
    launcher = (ROOT / "deploy/krew/kubectl-cruise").read_text(encoding="utf-8").replace("VERSION", __version__)
    with tarfile.open(archive, "w:gz", compresslevel=9, format=tarfile.USTAR_FORMAT) as tar:
        for name, content, mode in (
            ("kubectl-cruise", launcher.encode(), 0o755),
            ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    place = urlsplit(uri)
    found = {
        "VERSION": __version__,
        "HOMEPAGE": f"{place.scheme}://{place.netloc}",
        "URI": uri,
        "SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }
    manifest = (ROOT / "deploy/krew/cruise.yaml").read_text(encoding="utf-8").partition("\n")[2]
    for name, text in found.items():
        manifest = manifest.replace(name, text)
    (directory / MANIFEST).write_text(manifest, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or urlsplit(sys.argv[1]).scheme != "https":
        sys.exit("give the https address at which the archive will be")
    (ROOT / "dist").mkdir(exist_ok=True)
    make(sys.argv[1], ROOT / "dist")
