"""The rights of every account and mode as a table; `python -m tests.deploy.rights_table` prints it."""

from collections import defaultdict
from collections.abc import Iterator

from tests.controlplane.api import Json
from tests.deploy.installing import MODES, permissions

HEADINGS = ("account", "from mode", "where", "what", "verbs")


def rights_table() -> str:
    """The output of `kubectl auth can-i --list` for each account, by the first mode that grants it; in Markdown."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *_rows()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rows() -> Iterator[tuple[str, ...]]:
    known: list[Json] = []
    for mode in MODES:
        found = permissions(mode)
        kinds: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        for account, where, rule in _granted([one for one in found if one not in known]):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    names = "".join(f" {name}" for name in rule.get("resourceNames", ()))
                    what = f"`{resource}{'.' if group else ''}{group}{names}`"
                    kinds[account, where, ", ".join(rule["verbs"])].append(what)
        for (account, where, verbs), resources in kinds.items():
            yield f"`{account}`", f"`{mode}`", where, ", ".join(sorted(resources)), verbs
        known = found


def _granted(objects: list[Json]) -> Iterator[tuple[str, str, Json]]:
    roles = {
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one
        for one in objects
        if "rules" in one
    }
    for binding in objects:
        for subject in binding.get("subjects", ()):
            namespace = binding["metadata"].get("namespace")
            role = roles[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]
            for rule in role["rules"]:
                yield subject["name"], f"`{namespace}`" if namespace else "everywhere", rule


if __name__ == "__main__":
    print(rights_table())
