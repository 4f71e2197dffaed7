"""Comparing a checkout with itself finds no difference; comparing it with another finds each."""

import json
from pathlib import Path

import pytest

from benchmarks.compare_decisions.__main__ import main
from benchmarks.compare_decisions.cases import Case, normalize
from benchmarks.compare_decisions.checkout_process import CheckoutProcess, CommandResult
from benchmarks.compare_decisions.comparison import RenamedSide, compare, read_renamed
from cruise import __version__

ROOT = Path(__file__).parents[3]


def results(**outputs: str):
    """A side whose commands succeed with the output given for the case's name."""
    return lambda case: CommandResult(0, outputs[case.name], "")


def cases(*names: str) -> list[Case]:
    return [Case("plan", name, ("plan", name)) for name in names]


@pytest.mark.server
def test_a_reference_has_every_rejected_input_and_changed_results_are_found(tmp_path, capsys):
    reference, found = tmp_path / "reference", tmp_path / "found"
    saving = ["--before", str(ROOT), "--save", str(reference), "--clusters", "0", "--jobs", "1"]
    assert main(saving) == 0
    files = sorted((reference / "results").iterdir())
    saved = [json.loads(file.read_text()) for file in files]
    assert len(saved) > 200
    assert [(one["exit_code"], one["output"]) for one in saved] == [(2, "")] * len(saved)
    assert [one["errors"] for one in saved if not one["errors"].startswith("cruise: ")] == []
    for index, change in ((0, {"exit_code": 1}), (1, {"errors": "cruise: in other words\n"})):
        files[index].write_text(json.dumps(saved[index] | change))
    comparing = ["--reference", str(reference), "--after", str(ROOT), "--clusters", "0", "--jobs", "1"]
    capsys.readouterr()
    assert main([*comparing, "--differences", str(found)]) == 1
    assert capsys.readouterr().out.splitlines()[1].split() == ["refused", *map(str, (len(saved), len(saved) - 1, 1, 1))]
    assert sorted(path.name for path in found.iterdir()) == [
        f"refused-{number}.{side}" for number in ("000", "001") for side in ("after", "before")
    ]
    files[2].unlink()
    assert main(comparing) == 2


def test_differing_documents_are_indented_for_a_diff(tmp_path):
    before = results(same='{"a":1}', value='{"a":1}', layout='{"a":1}', text="a")
    after = results(same='{"a":1}', value='{"a":2}', layout='{"a": 1}', text="b")
    counts = compare(cases("same", "value", "layout", "text"), before, after, 2, tmp_path)
    assert (counts.equal.total(), counts.different.total()) == (1, 3)
    written = {path.name: path.read_text().partition("\nexit 0\n\n")[2] for path in tmp_path.iterdir()}
    assert written == {
        "value.before": '{\n "a": 1\n}',
        "value.after": '{\n "a": 2\n}',
        "layout.before": '{"a":1}',
        "layout.after": '{"a": 1}',
        "text.before": "a",
        "text.after": "b",
    }


def test_listed_names_do_not_differ(tmp_path):
    (tmp_path / "names").write_text('"kills"\t"oomKills"\nleft alone\tskipped\n')
    before = RenamedSide(results(one='{"kills":1}\nleft alone', two='{"kills":1}'), read_renamed(tmp_path / "names"))
    after = results(one='{"oomKills":1}\nskipped', two='{"oomKills":2}')
    counts = compare(cases("one", "two"), before, after, 1, tmp_path / "differences")
    assert (counts.equal.total(), counts.different.total()) == (1, 1)


def test_a_line_without_two_names_is_rejected(tmp_path):
    (tmp_path / "names").write_text('"kills"\t"oomKills"\n"reason"\n')
    with pytest.raises(ValueError, match="names: line 2: not an old text"):
        read_renamed(tmp_path / "names")


def test_durations_and_directories_are_ignored():
    inputs, checkout = Path("/tmp/inputs"), Path("/src/cruise")
    text = '{"seconds":0.024,"file":"/tmp/inputs/a.json","at":"/src/cruise/x"}'
    assert normalize(text, inputs, checkout) == '{"seconds":0,"file":"$INPUTS/a.json","at":"$CHECKOUT/x"}'


def test_one_process_runs_several_commands():
    process = CheckoutProcess(ROOT)
    try:
        assert process.run(["--version"]) == CommandResult(0, f"cruise {__version__}\n", "")
        assert process.run(["plan"]).exit_code == 2
        assert process.run(["--version"]).output == f"cruise {__version__}\n"
    finally:
        process.close()


def test_the_package_of_another_checkout_is_not_run(tmp_path):
    with pytest.raises(RuntimeError, match="has no package cruise"):
        CheckoutProcess(tmp_path).run(["--version"])
