"""A release: checksums, provenance, the Dockerfile, the workflows, and the wheel on a machine without a checkout."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

from scripts.image.root import ENVIRONMENT, USER
from scripts.provenance import PINS, build_statement, compute_sha256
from scripts.release import PROVENANCE, SUMS, describe_release

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))


def test_every_file_has_a_checksum_and_is_a_subject_of_the_provenance(tmp_path: Path):
    for name in ("cruise-1.0.tar.gz", "cruise-1.0.whl"):
        (tmp_path / name).write_text(name)
    for _ in range(2):
        describe_release(tmp_path)
        command = ["sha256sum", "--check", "--strict", SUMS]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.count(": OK")) == (0, 3), done.stderr
    statement = json.loads((tmp_path / PROVENANCE).read_text())
    assert {one["name"]: one["digest"]["sha256"] for one in statement["subject"]} == {
        name: compute_sha256(tmp_path / name) for name in ("cruise-1.0.tar.gz", "cruise-1.0.whl")
    }


def test_a_provenance_names_the_commit_and_the_hash_of_every_pin():
    dependencies = build_statement("release", {})["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert re.fullmatch(r"[0-9a-f]{40}(-changed)?", dependencies[0]["digest"]["gitCommit"])
    assert [one["uri"] for one in dependencies[1:]] == [f"file:{name}" for name in PINS]
    assert [one["digest"]["sha256"] for one in dependencies[1:]] == [compute_sha256(ROOT / name) for name in PINS]


def test_a_container_of_the_dockerfile_runs_as_one_of_the_other_image_does():
    text = (ROOT / "deploy/Dockerfile").read_text()
    assert f"\nUSER {USER}:{USER}\n" in text
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in ("PATH", "LC_ALL")}
    assert [name for name, value in environment.items() if f"{name}={value}" not in text] == []
    assert 'ENTRYPOINT ["cruise"]' in text
    # Only files of a release are copied, so that any checkout gives the same image.
    copied = re.findall(r"^COPY (?!--from=build)(.*)$", text, re.MULTILINE)
    assert copied == ["requirements-cloud.txt cruise-*.whl /build/"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_grants_itself_nothing_by_default_and_runs_what_is_there(workflow: Path):
    stated = yaml.safe_load(workflow.read_text())
    assert stated["permissions"] == {"contents": "read"}
    commands = "\n".join(step.get("run", "") for job in stated["jobs"].values() for step in job["steps"])
    targets = set(re.findall(r"make ([a-z-]+)", commands)) - {"python"}
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    scripts = re.findall(r"(?:^|\s)((?:\.ci|scripts|tests)/[\w./-]+)", commands)
    assert [one for one in scripts if not os.access(ROOT / one, os.X_OK)] == []
    assert targets or scripts


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_wheel_runs_the_demo_without_a_checkout(tmp_path: Path):
    wheels = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheels, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    venv.create(tmp_path / "bare", with_pip=True)
    [wheel] = tmp_path.glob("cruise-*.whl")
    programs = tmp_path / "bare/bin"
    subprocess.run([programs / "pip", "install", "--quiet", wheel], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {**os.environ, "DEMO_SECONDS": "20", "HOME": str(tmp_path)}
    done = subprocess.run(
        [programs / "cruise", "demo"], cwd=empty, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^dashboard: http://127\.0\.0\.1:\d+/$", done.stdout, re.MULTILINE)
    assert re.search(r"^sign in: .* with the token in /\S+/demo\.token$", done.stdout, re.MULTILINE)
    assert "resized in place" in done.stdout
