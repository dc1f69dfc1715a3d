"""The ledger: a run's directory is the truth about it. A step counts if its `commit.json` exists.

`commit.json` holds the hashes of everything that the step made. Scored samples are stored before the update that uses
them (the write-ahead log), so a lost learner is rebuilt by replay.
"""

import logging
import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any
from uuid import uuid4

from configs.errors import UserError
from configs.loader import dump_yaml, read_recipe
from configs.schema import Recipe
from tasks.run.directory import RECIPE, RECORD, Run, runs_in
from trainer.files import read_json, remove, sha256, whole_file, write_json

logger = logging.getLogger(__name__)
FORMAT = 3
BEST_BY = "eval/heldout/sampled_accuracy"
COMPARABLE = 0.9
"""Least share of the answers of the best scored evaluation that another one needs to be compared with it."""


def create_run(home: Path, recipe: Recipe, flow_run: str | None = None) -> Run:
    """Make the directory of a new run.

    Args:
        home: The directory that holds the runs.
        recipe: The run's recipe.
        flow_run: Id of the Prefect flow run that begins it, by which `run_of` finds it again.

    Raises:
        UserError: if the directory can't be written.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    # An id is a folder, a word in commands, and part of filters: a recipe's file may be called `bob's.yaml`.
    name = re.sub(r"[^\w.-]", "_", recipe.name)
    run = Run(runs_in(home) / f"{name}-{stamp}-{uuid4().hex[:4]}", recipe)
    try:
        run.root.mkdir(parents=True)
        write_recipe(run)
        identity = {
            "format": FORMAT,
            "created": stamp,
            "flow_run": flow_run,
            "order_seed": recipe.data.seed,
            "changes": [],
        }
        write_json(run.record, identity)
    except OSError as error:
        raise UserError(
            f"can't write the run directory {run.root}: {error.strerror}. Set RL_POST_HOME to a writable directory"
        ) from None
    return run


def write_recipe(run: Run) -> None:
    """Store the run's recipe, whole or not at all."""
    with whole_file(run.recipe_file) as temporary:
        temporary.write_text(dump_yaml(run.recipe))


def run_of(home: Path, flow_run: str) -> Run | None:
    """Return the run that a Prefect flow run began, or None. A retried flow run goes on with it."""
    found = (path for path in runs_in(home).glob(f"*/{RECORD}") if _begun_by(path) == flow_run)
    return next((open_run(home, path.parent.name) for path in found), None)


def order_seed(run: Run) -> int:
    """Return the seed that decides the order of a run's prompts: `data.seed`, as it was when the run began.

    Runs of before took their `seed` and did not write it down; they keep their order.
    """
    if not run.record.exists():  # It is not begun.
        return run.recipe.data.seed
    return read_record(run.record).get("order_seed", run.recipe.seed)


def _begun_by(identity: Path) -> str | None:
    with suppress(UserError):  # A damaged run must not block others.
        return read_record(identity).get("flow_run")


def open_run(home: Path, name: str) -> Run:
    """Open an existing run by its id or by the path of its directory.

    Raises:
        UserError: if there is no such run, if it is still being made or is damaged, or if another version of this
            project wrote it.
    """
    root = next((path for path in (runs_in(home) / name, Path(name).absolute()) if path.is_dir()), None)
    if root is None:
        known = sorted(path.name for path in runs_in(home).glob("*/"))[-5:]
        raise UserError(f"no run {name!r} in {runs_in(home)}; the latest are: {', '.join(known) or 'none'}")
    if not (root / RECORD).is_file():
        raise UserError(f"{root} is no run: it has no run.json. A run that is just being made gets it in a moment")
    found = read_record(root / RECORD, "format")["format"]
    if found != FORMAT:
        raise UserError(f"{root} has format {found}; this version of rl-post reads format {FORMAT}")
    return Run(root, read_recipe(root / RECIPE))


Receipt = dict[str, Any]


def once(path: Path, make: Callable[[], Receipt]) -> Receipt:
    """Return the receipt that is stored at `path`, or make and store it, with the `seconds` that it took.

    This makes a task idempotent: a second run finds the result of the first. Files that `make` writes are complete
    before the receipt exists. If the receipt has the `path` of a file, it also holds the file's hash: a damaged file is
    made again. A file beside the receipt is stored by its name only, because a run may be moved.
    """
    if path.exists():
        receipt = read_json(path)
        if "path" in receipt:
            receipt["path"] = str(path.parent / receipt["path"])
        if _vouches(receipt):
            return receipt
        logger.warning("%s is missing or damaged and is made again", receipt["path"])
    start = perf_counter()
    receipt = make()
    receipt["seconds"] = perf_counter() - start
    made = Path(receipt.get("path", ""))
    if made.is_file():
        receipt["sha256"] = sha256(made)
    write_json(path, receipt | {"path": made.name} if made.parent == path.parent else receipt)
    return receipt


def _vouches(receipt: Receipt) -> bool:
    file = Path(receipt.get("path", ""))
    return "sha256" not in receipt or (file.is_file() and sha256(file) == receipt["sha256"])


def commit(run: Run, step: int, metrics: dict[str, float]) -> None:
    """Commit a step: record its metrics and the hash of every file that it made. Committing again changes nothing."""
    target = run.commit(step)
    if not target.exists():
        files = {path.name: sha256(path) for path in sorted(target.parent.glob("[!.]*")) if path.is_file()}
        # Milliseconds since 1970, for display. A point sent to MLflow again has the same time: it stays one point.
        stamp = time_ns() // 1_000_000
        write_json(target, {"step": step, "metrics": metrics, "files": files, "time": stamp})


def best_version(run: Run) -> int | None:
    """Return the version with the best sampled accuracy on the held-out questions, the earliest of equals.

    Values that are not finite don't count, nor does an evaluation that lost answers which others could score: a judge
    that was down leaves an accuracy of the few that it had marked. None if nothing was evaluated and committed. Only
    versions with weights on the disk are compared: the best one's weights are never removed.
    """
    there = [version for version in run.weights_versions() if run.commit(version).exists()]
    metrics = {version: read_commit(run, version)["metrics"] for version in there}
    accuracies = {version: metrics[version].get(BEST_BY, math.nan) for version in there}
    scored = {version: metrics[version].get(f"{BEST_BY}_scored", 1.0) for version in there}
    finite = [version for version in there if math.isfinite(accuracies[version])]
    most = max((scored[version] for version in finite), default=0.0)
    comparable = [version for version in finite if scored[version] >= COMPARABLE * most]
    return max(comparable, key=accuracies.__getitem__, default=None)


def forget_weights(run: Run, before: int) -> None:
    """Remove the weights versions before `before`, except version 0, which the run started from, and the best one."""
    best = best_version(run)
    for version in run.weights_versions():
        if 0 < version < before and version != best:
            remove(run.weights(version))


def read_commit(run: Run, step: int) -> Receipt:
    """Return a committed step's record: `step`, `metrics`, `files`, and the `time` of the commit in milliseconds.

    Raises:
        UserError: if it is damaged.
    """
    return read_record(run.commit(step), "step", "metrics", "files", "time")


def read_record(path: Path, *keys: str) -> Receipt:
    """Return a JSON object of the ledger, which must have some keys.

    Raises:
        UserError: if the file holds something else.
    """
    with suppress(ValueError):
        found = read_json(path)
        if isinstance(found, dict) and found.keys() >= {*keys}:
            return found
    raise UserError(f"{path} is damaged: what it holds is not what rl-post wrote")


def committed_steps(run: Run) -> list[int]:
    """Return the committed steps in order."""
    return [step for step in run.steps_begun() if run.commit(step).exists()]


def policy_folder(run: Run) -> str:
    """Return the folder of the policy that the updates start from, which the cold start left.

    Raises:
        UserError: it is gone.
    """
    folder = run.home / read_json(run.policy)["folder"]
    if not folder.is_dir():
        raise UserError(
            f"{folder}, the policy that {run.id} started from, is not there: put it back. A model of the hub lies "
            "where HF_HOME says"
        )
    return str(folder)
