"""The chart's Postgres: the roles and passwords that its first start creates."""

import os
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.controlplane.binaries import NotAvailable
from tests.deploy.rendering import objects
from tests.postgres_servers import DebianServer, change

ROLES = ("cruise_owner", "cruise_serve", "cruise_webhook")


def psql(server: DebianServer, url: str, *arguments: str) -> str:
    """Run Debian's client on a database of the server."""
    parts = urlsplit(url)
    environment = {**os.environ, "PGPASSWORD": unquote(parts.password or "")}
    place = ["-h", "127.0.0.1", "-p", str(server.port), "-U", parts.username or "", "-d", parts.path[1:]]
    command = [str(server.programs / "psql"), "-v", "ON_ERROR_STOP=1", "--no-psqlrc", "-qAt", *place, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_first_start_makes_the_roles_that_the_urls_name(debian_postgres: DebianServer, tmp_path: Path):
    try:
        found = {(one["kind"], one["metadata"]["name"]): one for one in objects({"mode": "initial"})}
    except NotAvailable as missing:
        pytest.skip(f"no Helm on this machine: {missing}")
    secret = found["Secret", "cruise-database"]["stringData"]
    [container] = found["StatefulSet", "cruise-postgres"]["spec"]["template"]["spec"]["containers"]
    variables = {
        one["name"]: secret[one["valueFrom"]["secretKeyRef"]["key"]] if "valueFrom" in one else one["value"]
        for one in container["env"]
    }
    administrator = debian_postgres.url.removesuffix("postgres") + variables["POSTGRES_DB"]
    change(debian_postgres.url, f"CREATE DATABASE {variables['POSTGRES_DB']}")
    try:
        # As the image's entry point does: by name, SQL through psql, other scripts into its own shell.
        for name, text in sorted(found["ConfigMap", "cruise-postgres"]["data"].items()):
            (tmp_path / name).write_text(text)
            if name.endswith(".sql"):
                psql(debian_postgres, administrator, "-f", str(tmp_path / name))
                continue
            server = {
                "PATH": f"{debian_postgres.programs}:{os.environ['PATH']}",
                "PGHOST": "127.0.0.1",
                "PGPORT": str(debian_postgres.port),
                "PGPASSWORD": unquote(urlsplit(debian_postgres.url).password or ""),
            }
            script = ["bash", "-euo", "pipefail", "-c", f". {tmp_path / name}"]
            subprocess.run(script, check=True, capture_output=True, env={**os.environ, **variables, **server})
        for key, role in (("owner-url", ROLES[0]), ("url", ROLES[1]), ("webhook-url", ROLES[2])):
            assert psql(debian_postgres, secret[key], "-c", "SELECT current_user") == role
            assert urlsplit(secret[key]).hostname == "cruise-postgres.cruise.svc"
        psql(debian_postgres, secret["owner-url"], "-c", "CREATE TABLE known (name text)")
        psql(debian_postgres, secret["url"], "-c", "INSERT INTO known VALUES ('a')")
        assert psql(debian_postgres, secret["webhook-url"], "-c", "SELECT name FROM known") == "a"
        with pytest.raises(AssertionError, match="read-only transaction"):
            psql(debian_postgres, secret["webhook-url"], "-c", "DELETE FROM known")
    finally:
        change(debian_postgres.url, f"DROP DATABASE {variables['POSTGRES_DB']} WITH (FORCE)")
        change(debian_postgres.url, f"DROP ROLE IF EXISTS {', '.join(ROLES)}")
