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
    "engine out of memory",
    "engine actor",
    "learner actor",
    "driver",
    "mlflow away",
    "prefect away",
    "slow disk",
    "full disk",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
LASTING = ("mlflow away", "prefect away", "slow disk", "full disk")
FILES = ("rollout-00.json", "scored-01.json", "batch.json", "update.json", "commit.json")
"""Files of a step in the order in which they appear: the moments after which something happens."""
IN_DRIVER = ("commit", "projection")
"""Stages that are no task: the commit is written and has not its name; it has, and MLflow was not told."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: what it happens to.
        step: the step that is being made.
        file: the file of the step that has just appeared.
        delay: seconds from then on.
        length: seconds that it lasts, where it is one of LASTING.
        by_prefect: the flow run is run again under its id, where a run has to be resumed.
        stage: the task that runs at the moment, or one of IN_DRIVER, in place of the file.
    """

    kind: Kind | Literal["ray node"]
    step: int = 1
    file: str = ""
    delay: float = 0.0
    length: float = 0.0
    by_prefect: bool = False
    stage: str = ""

    def __str__(self) -> str:
        if self.stage:
            return f"{self.kind} during {self.stage}"
        return f"{self.kind} {self.delay:.2f} s after {self.file} of step {self.step}"


def fault_of(seed: int, steps: int) -> Fault:
    """Draw the fault of a seed: the kinds take turns, the moment is random within the run's steps.

    The last step's commit is too late for most things to happen.
    """
    rng = random.Random(seed)
    moments = [(step, file) for step in range(1, steps + 1) for file in FILES][:-1]
    step, file = rng.choice(moments)
    kind = KINDS[seed % len(KINDS)]
    length = rng.uniform(2.0, 12.0) if kind in LASTING else 0.0
    return Fault(kind, step, file, rng.uniform(0.0, 0.4), length, rng.random() < 0.5)


Hits = Callable[[psutil.Process], bool]
"""Tells whether a process of a run is the one to strike, by its command line or its children."""


def _command(process: psutil.Process) -> list[str]:
    return process.cmdline() or [""]


def _is_server(process: psutil.Process) -> bool:
    return _command(process)[1:3] == ["-m", "sglang.launch_server"]


def _is_scheduler(process: psutil.Process) -> bool:
    return _command(process)[0].startswith("sglang::scheduler")


def _is_actor(name: str) -> Hits:
    return lambda process: _command(process)[0].startswith(f"ray::{name}")


def _is_task(process: psutil.Process) -> bool:
    title = _command(process)[0]
    return title.startswith("ray::") and not title.startswith(("ray::IDLE", "ray::Engine", "ray::LearnerRank"))


def _is_learners_node(process: psutil.Process) -> bool:
    return _command(process)[0].endswith("/raylet") and any(map(_is_actor("LearnerRank"), process.children()))


STRIKES: dict[str, tuple[Hits, Signals]] = {
    "task worker": (_is_task, SIGKILL),
    "engine server": (_is_server, SIGKILL),
    "engine hang": (_is_server, SIGSTOP),
    "engine out of memory": (_is_scheduler, SIGKILL),
    "engine actor": (_is_actor("Engine"), SIGKILL),
    "learner actor": (_is_actor("LearnerRank"), SIGKILL),
    "ray node": (_is_learners_node, SIGKILL),
}


def strike(kind: str, processes: list[psutil.Process]) -> bool:
    """Send the signal to the first process that a fault is for, and tell whether there was one."""
    hits, number = STRIKES[kind]
    for process in processes:
        try:
            if hits(process):
                # A node is lost with all that runs on it.
                for lost in [process, *(process.children() if kind == "ray node" else [])]:
                    lost.send_signal(number)
                return True
        except (psutil.Error, IndexError):
            continue
    return False


def is_running(stage: str, home: str) -> bool:
    """Tell whether a Ray worker of a home runs a task: Ray names the process after it."""
    for process in psutil.process_iter():
        try:
            if _command(process)[0].startswith(f"ray::{stage}") and process.environ().get("RL_POST_HOME") == home:
                return True
        except psutil.Error:
            continue
    return False
