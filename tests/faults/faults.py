"""What goes wrong, and when: one thing a seed, drawn from the seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from signal import SIGKILL, SIGSTOP, Signals
from typing import Literal, get_args

import psutil

Kind = Literal[
    "task worker",
    "engine server",
    "engine hang",
    "engine actor",
    "learner actor",
    "driver",
    "mlflow away",
    "prefect away",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
FILES = ("rollout-00.json", "scored-01.json", "batch.json", "update.json", "commit.json")
"""Files of a step in the order in which they appear: the moments after which something happens."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: what it happens to.
        step: the step that is being made.
        file: the file of the step that has just appeared.
        delay: seconds from then on.
        length: seconds that a service is away.
        by_prefect: the flow run is run again under its id, where a run has to be resumed.
    """

    seed: int
    kind: Kind
    step: int
    file: str
    delay: float
    length: float
    by_prefect: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.delay:.2f} s after {self.file} of step {self.step}"


def fault_of(seed: int, steps: int) -> Fault:
    """Draw the fault of a seed: the kinds take turns, the moment is random within the run's steps.

    The last step's commit is too late for most things to happen.
    """
    rng = random.Random(seed)
    moments = [(step, file) for step in range(1, steps + 1) for file in FILES][:-1]
    step, file = rng.choice(moments)
    kind = KINDS[seed % len(KINDS)]
    return Fault(seed, kind, step, file, rng.uniform(0.0, 0.4), rng.uniform(2.0, 12.0), rng.random() < 0.5)


@dataclass(frozen=True)
class Strike:
    """How a process is told among those of a run, and the signal that it gets."""

    hits: Callable[[list[str]], bool]
    number: Signals = SIGKILL


def _is_server(command: list[str]) -> bool:
    return command[1:3] == ["-m", "sglang.launch_server"]


def _is_actor(name: str) -> Callable[[list[str]], bool]:
    return lambda command: command[0].startswith(f"ray::{name}")


def _is_task(command: list[str]) -> bool:
    return command[0].startswith("ray::") and not command[0].startswith(
        ("ray::IDLE", "ray::Engine", "ray::LearnerRank")
    )


STRIKES: dict[str, Strike] = {
    "task worker": Strike(_is_task),
    "engine server": Strike(_is_server),
    "engine hang": Strike(_is_server, SIGSTOP),
    "engine actor": Strike(_is_actor("Engine")),
    "learner actor": Strike(_is_actor("LearnerRank")),
}


def strike(strike: Strike, processes: list[psutil.Process]) -> bool:
    """Send the signal to the first process that the strike is for, and tell whether there was one."""
    for process in processes:
        try:
            if strike.hits(process.cmdline() or [""]):
                process.send_signal(strike.number)
                return True
        except (psutil.Error, IndexError):
            continue
    return False
