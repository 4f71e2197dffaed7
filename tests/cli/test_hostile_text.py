"""Names and annotations with terminal control sequences: tables escape them, documents keep them exactly."""

import contextlib
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cruise.cli import main
from tests.builders import (
    make_container_json,
    make_deployment_json,
    make_list_json,
    make_namespace_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_usage_item_json,
    make_usage_json,
)
from tests.cli.test_cli import alone
from tests.tiers import examples

__all__ = ["alone"]

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
TITLE, CLEAR, OVERRIDE = "\x1b]0;owned\x07", "\x9b2J\x1b[2J\x1b[31m", "\u202eevil\u2066"
WORST = f"a{TITLE}{CLEAR}{OVERRIDE}\r\nforged line\x7f\U000e0041b"
HOSTILE = st.text(
    st.one_of(
        st.sampled_from("\x1b\x9b\x07\x00\x7f\n\r\t\x85\u202e\u2066\u200f\u2028\U000e0041"),
        st.characters(exclude_categories=["Cs"], exclude_characters="/"),
    ),
    min_size=1,
    max_size=10,
)


def files(directory: Path, text: str) -> list[str]:
    """A cluster in which everything that has a name is called so, one pod has such an annotation, and one waits."""
    namespace, owner = f"n{text}", f"ReplicaSet/r{text}"
    own: dict[str, Any] = {"namespace": namespace, "owner": owner, "node": f"o{text}"}
    container = make_container_json(f"c{text}", cpu="2", memory="1Gi")
    objects = [
        make_node_json(f"o{text}", cpu="4"),
        make_pod_json(f"p{text}", containers=[container], **own),
        make_pod_json(f"q{text}", containers=[container], annotations={"cruise.io/mode": text}, **own),
        make_pod_json(f"s{text}", containers=[container], annotations={f"cruise.io/{text}": "1"}, **own),
        make_pod_json(f"w{text}", containers=[container], **own | {"node": None}),
        make_deployment_json(f"d{text}", namespace),
        make_replica_set_json(f"r{text}", namespace, owner=f"Deployment/d{text}"),
        make_namespace_json(namespace, annotations={f"cruise.io/cpu-max.c{text}": "4"}),
    ]
    of: dict[str, Any] = {"namespace": namespace, "workload": f"Deployment/d{text}", "container": f"c{text}"}
    usage = make_usage_json(*(make_usage_item_json(f"{pod}{text}", **of) for pod in "pqsw"))
    (directory / "cluster.json").write_text(json.dumps(make_list_json(*objects)))
    (directory / "usage.json").write_text(json.dumps(usage))
    return ["--snapshot", str(directory / "cluster.json"), "--usage", str(directory / "usage.json")]


def said(*arguments: str) -> str:
    """What a command writes, on either stream."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main(arguments)
    written = []
    for stream in (out, err):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        written.append(stream.buffer.getvalue().decode())
    return "".join(written)


def shown_of(text: str, directory: Path) -> dict[str, str]:
    """What every command that reads files writes about such a cluster."""
    given_files = files(directory, text)
    commands = {
        "plan": ("plan", *given_files),
        "plan --node": ("plan", *given_files, "--node", f"o{text}"),
        "pack": ("pack", *given_files, "--sizes", "rightsized"),
        "scan": ("scan", *given_files),
        "scan csv": ("scan", *given_files, "--format", "csv"),
        "scan html": ("scan", *given_files, "--format", "html"),
        "scan yaml": ("scan", *given_files, "--format", "yaml"),
        "refused": ("plan", *given_files, "--node", f"x{text}"),
    }
    for pod in "pqsw":
        commands[f"explain {pod}"] = ("explain", *given_files, f"n{text}/{pod}{text}")
    for name in ("plan", "pack", "scan", "explain p", "explain q"):
        commands[f"{name} json"] = (*commands[name], "--format", "json")
    return {name: said(*command) for name, command in commands.items()}


@examples(3)
@given(HOSTILE)
@example(WORST)
def test_no_command_prints_terminal_control_sequences(text):
    with tempfile.TemporaryDirectory() as directory:
        shown = shown_of(text, Path(directory))
    for name, written in shown.items():
        assert STEERING.findall(written) == [], name
        assert not any(line.lstrip().startswith("forged line") for line in written.split("\n")), name
    for name, written in shown.items():
        if name.endswith(" json"):
            document = json.loads(written.partition("cruise: note: ")[0])
            if name.startswith("explain"):
                assert document["namespace"] == f"n{text}"
            if name.startswith("plan"):
                assert [node["node"] for node in document["nodes"]] == [f"o{text}"]
    names = json.dumps(yaml.safe_load(shown["scan yaml"].partition("cruise: note: ")[0]))
    assert json.dumps(f"o{text}")[1:-1] in names


def test_what_is_long_is_cut(tmp_path):
    written = files(tmp_path, "x")
    snapshot = json.loads(Path(written[1]).read_text())
    for one in snapshot["items"]:
        if one["kind"] == "Pod":
            one["metadata"]["annotations"] = {"cruise.io/mode": "y" * 250_000}
    Path(written[1]).write_text(json.dumps(snapshot))
    for command in (("explain", *written, "nx/px"), ("plan", *written), ("explain", *written, f"{'y' * 9_000}/px")):
        assert said(*command).count("y") < 2_500
