"""An audit without an answer never reports that there are no vulnerabilities."""

import json

import pytest

from scripts.audit import FOUND, UNKNOWN, main

CLEAN = {"name": "uv", "version": "1.0", "vulns": []}
KNOWN = {"name": "six", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
UNTOLD = {"name": "idna", "skip_reason": "Dependency not found"}


@pytest.fixture
def answering(tmp_path):
    """A program that answers about each requirement file with the text of the file itself, in pip-audit's format."""
    program = tmp_path / "answering"
    program.write_text('#!/bin/sh\nfor last; do :; done\ncat "$last"\necho "no route to the database" >&2\n')
    program.chmod(0o755)

    def ask(*answers):
        files = [tmp_path / f"requirements-{number}.txt" for number in range(len(answers))]
        for file, answer in zip(files, answers, strict=True):
            file.write_text(answer if isinstance(answer, str) else json.dumps({"dependencies": answer}))
        return main(str(program), *map(str, files))

    return ask


def test_success_is_for_packages_that_were_all_looked_up(answering, capsys):
    assert answering([CLEAN], [CLEAN, CLEAN]) == 0
    assert capsys.readouterr().out.count("nothing known of") == 2


@pytest.mark.parametrize("answer", ["", [UNTOLD]])
def test_an_unavailable_database_is_a_failure_reported_in_one_line(answering, capsys, answer):
    assert answering(answer, [CLEAN]) == UNKNOWN
    (line,) = capsys.readouterr().out.splitlines()
    assert "cannot be reached" in line
    assert ("idna" in line) == bool(answer) and ("no route" in line) != bool(answer)


def test_a_known_vulnerability_counts_more_than_packages_without_an_answer(answering, capsys):
    assert answering([CLEAN, UNTOLD], [KNOWN, UNTOLD], [CLEAN]) == FOUND
    assert "six 1.0: PYSEC-1, mended in 1.1" in capsys.readouterr().out
