"""Audits the pinned packages for known vulnerabilities with pip-audit: `audit.py PIP_AUDIT FILE…`.

Exits with 0 if none is known, 1 if one is, and 3 if the database did not answer.
"""

import json
import subprocess
import sys

FOUND, UNKNOWN = 1, 3


def audit(pip_audit: str, requirements: str) -> tuple[list[str], list[str], int]:
    """Return a file's known vulnerabilities, its packages without an answer, and its number of packages."""
    command = [pip_audit, "--format", "json", "--progress-spinner", "off", "--disable-pip", "--require-hashes"]
    done = subprocess.run([*command, "--requirement", requirements], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return [], [f"all of it ({(done.stderr.strip().splitlines() or ['no answer'])[-1]})"], 0
    found = [
        f"{one['name']} {one['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'no version'}"
        for one in packages
        for known in one.get("vulns", ())
    ]
    untold = [one["name"] for one in packages if "skip_reason" in one]
    return found, untold, len(packages) - len(untold)


def main(pip_audit: str, *files: str) -> int:
    """Audit file by file; stop after a file without any answer, because the next ones would have none either."""
    code = 0
    for file in files:
        found, untold, audited = audit(pip_audit, file)
        for line in found:
            print(f"audit: {file}: {line}")
        if found:
            code = FOUND
        elif untold:
            code = code or UNKNOWN
            print(
                f"audit: {file}: nothing was told of {', '.join(untold)}: the database cannot be reached, or lacks them"
            )
            if not audited:
                return code
        else:
            print(f"audit: {file}: nothing known of {audited} packages")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
