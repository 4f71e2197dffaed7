"""The program spin on the model of the write protocol: exhaustive checks, counterexamples and random runs."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).parents[2] / "docs" / "protocol" / "model.pml"
PACKING_MODEL = MODEL.with_name("packing.pml")
WHY_NOT = None if shutil.which("spin") and shutil.which("gcc") else "spin or gcc is not installed"
_COMPILER = ("gcc", "-w", "-O1", "-DNFAIR=3", "-DMEMLIM=3000", "-o", "pan", "pan.c")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a run of the model: a word, its arguments, and what can be seen from outside after it.

    `state` is None where the next event follows in the same step.
    """

    word: str
    arguments: tuple[str, ...]
    state: str | None = None

    def __str__(self) -> str:
        return " ".join((self.word, *self.arguments))


@dataclass(frozen=True, slots=True)
class Check:
    """What an exhaustive check found: how much it looked at, and the broken law with the events that lead to it.

    `complete` tells that nothing was left out.
    """

    states: int
    depth: int
    seconds: float
    complete: bool
    broken: str | None = None
    events: tuple[Event, ...] = ()


def check(folder: Path, defines: Sequence[str] = (), claim: str | None = None, *, model: Path = MODEL) -> Check:
    """Check a model under some definitions, such as `FAULTS=2`; with a `claim`, that formula under weak fairness."""
    options = [f"-D{one}" for one in defines]
    # spin leaves the way to a broken law next to the model.
    shutil.copy(model, folder)
    _run(["spin", *options, "-a", model.name], folder)
    _run([*_COMPILER, *(["-DSAFETY"] if claim is None else [])], folder)
    asked = [] if claim is None else ["-a", "-f", "-A", "-N", claim]
    told = _run(["./pan", "-m100000", *asked], folder)
    found = re.search(r"assertion violated (\w+)|(acceptance cycle)", told)
    broken = None if found is None else found[1] or claim
    events = () if broken is None else tuple(events_of(_run(["spin", *options, "-t", model.name], folder)))
    return Check(
        states=_number(r"(\S+) states, stored", told),
        depth=_number(r"depth reached (\S+),", told),
        seconds=float(m[1]) if (m := re.search(r"elapsed time (\S+) seconds", told)) else 0.0,
        complete="errors: 0" in told
        and "Search not completed" not in told
        and "max search depth too small" not in told,
        broken=broken,
        events=events,
    )


def random_run(folder: Path, seed: int, defines: Sequence[str], *, model: Path = MODEL) -> tuple[Event, ...]:
    """Return the events of one random run of a model."""
    options = [f"-D{one}" for one in defines]
    return tuple(events_of(_run(["spin", "-T", f"-n{seed}", "-u5000", *options, str(model)], folder)))


def events_of(text: str) -> list[Event]:
    """Read what the model prints."""
    events: list[Event] = []
    for line in text.splitlines():
        word, *arguments = line.split() or [""]
        if word == "EV":
            events.append(Event(arguments[0], tuple(arguments[1:])))
        elif word == "STATE":
            last = events[-1]
            events[-1] = Event(last.word, last.arguments, " ".join(arguments))
    return events


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, text
    return int(float(found[1]))


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    # Asked for the way to a broken law, spin ends with an error of its own.
    errors = [line for line in done.stdout.splitlines() if "Error: " in line and "assertion violated" not in line]
    assert not errors and (done.returncode == 0 or "-t" in command), done.stdout + done.stderr
    return done.stdout
