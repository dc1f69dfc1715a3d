"""A copy of a run wherever fsspec writes to, from which the run can go on elsewhere.

    ADDRESS/r1-20261130-031500-a1b2/
      archive.json  run.json  recipe.yaml  steps/…  weights/…  checkpoints/…  policy/…

`archive.json` says what belongs to the copy, with the hash of each file, and is written last, by one call. A store of
objects needs to promise no more than that a file is there when its writing has returned: what a copy that was cut short
left is not in the list, and the list of before still holds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsspec.callbacks import TqdmCallback

from configs.addresses import without_user
from configs.errors import UserError
from tasks.run.directory import CHANGING, CHECKPOINTS, STEPS, WEIGHTS, Run, runs_in
from tasks.run.ledger import Receipt, best_version, committed_steps, open_run, policy_folder, read_commit
from tasks.run.stores import open_store
from trainer.files import sha256, written_at_once

INDEX = "archive.json"
POLICY = "policy"


@dataclass(frozen=True)
class Index:
    """What belongs to a copy.

    Attributes:
        run: The run's id.
        step: The last committed step that is in the copy; -1 before there is one.
        policy: Where the policy that the updates start from lies in the home of runs; None if it is not in the copy.
        files: SHA-256 by name; empty for those that change.
    """

    run: str
    step: int = -1
    policy: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def copy_run(run: Run, address: str) -> Receipt:
    """Bring the copy of a run up to its last committed step.

    Copied are all committed steps, the checkpoints, the first and the best weights and those with a checkpoint: what
    going on takes, and what is of use. What the run has let go since is removed.

    Args:
        run: The run.
        address: The folder of all copies, as fsspec takes it.

    Returns:
        `address` of the copy, its last `step`, and the `files` and `bytes` that were sent.

    Raises:
        UserError: the copy is ahead of the run, or another's.
        OSError: the store, or a file that was removed meanwhile: to be tried again.
    """
    store, root = open_store(place := f"{address.rstrip('/')}/{run.id}")
    before = _read_index(store, root) or Index(run.id)
    done = max(committed_steps(run), default=-1)
    if before.run != run.id or before.step > done:
        raise UserError(
            f"{without_user(address)} has {before.run} as of step {before.step}, and {run.root} is at step {done}: "
            "another goes on with that run. End one of them, and give this one another `archive`"
        )
    files, policy = _files(run, before, done), _policy(run)
    if policy:
        files |= {f"{POLICY}/{path.name}": path for path in sorted((run.home / policy).iterdir())}
    known = before.files
    new = {name: path for name, path in files.items() if not known.get(name)}
    hashes = {name: "" if name in CHANGING else known.get(name) or sha256(path) for name, path in files.items()}
    size = sum(path.stat().st_size for path in new.values())
    store.put([str(path) for path in new.values()], [f"{root}/{name}" for name in new])
    _write_index(store, root, Index(run.id, done, policy, hashes))
    _remove(store, root, keep=files)
    return {"address": place, "step": done, "files": len(new), "bytes": size}


def fetch_run(home: Path, address: str) -> Run:
    """Bring a run from its copy, if it isn't here already.

    Args:
        home: The directory of all runs.
        address: The copy's, as fsspec takes it.

    Raises:
        UserError: there is no copy, a file of it is missing or damaged, or the run that is here is behind it.
    """
    shown = without_user(address)
    store, root = open_store(address)
    index = _read_index(store, root)
    if index is None:
        raise UserError(
            f"{shown} is no copy of a run: it has no {INDEX}. Give the address with the run's id at its end"
        )
    target = runs_in(home) / index.run
    if target.exists():
        here = open_run(home, index.run)
        done = max(committed_steps(here), default=-1)
        if done < index.step:
            raise UserError(
                f"{target} is at step {done}, and its copy in {shown} at step {index.step}. Move {target} away to go "
                "on with the copy"
            )
        return here
    names = index.files
    own = [name for name in names if not name.startswith(f"{POLICY}/")]
    policy = sorted(names.keys() - {*own})
    if index.policy and not (home / index.policy).exists():
        _fetch(store, root, {name: name.removeprefix(f"{POLICY}/") for name in policy}, names, home / index.policy)
    _fetch(store, root, {name: name for name in own}, names, target)
    return open_run(home, index.run)


def opened(home: Path, name: str) -> Run:
    """Open a run by its id, by the path of its directory, or by the address of its copy, from where it is brought.

    Raises:
        UserError: as `open_run` and `fetch_run`.
    """
    return fetch_run(home, name) if "://" in name else open_run(home, name)


def _read_index(store: Any, root: str) -> Index | None:
    store.invalidate_cache()
    try:
        return Index(**json.loads(store.cat_file(f"{root}/{INDEX}")))
    except FileNotFoundError:
        return None


def _write_index(store: Any, root: str, index: Index) -> None:
    # A store of objects puts the whole list in place by one call, but one of files would write into the old one.
    store.pipe_file(f"{root}/.{INDEX}", json.dumps(vars(index), indent=1, sort_keys=True).encode())
    store.mv(f"{root}/.{INDEX}", f"{root}/{INDEX}")


def _files(run: Run, before: Index, done: int) -> dict[str, Path]:
    """Return what belongs to the copy as of step `done`, by name: the steps of the copy before it, and what is new."""
    names = [name for name in CHANGING if (run.root / name).exists()]
    names += [name for name in before.files if name.startswith(f"{STEPS}/")]
    new: list[Path] = []
    for step in range(before.step + 1, done + 1):
        new += [*(run.step_file(step, name) for name in read_commit(run, step)["files"]), run.commit(step)]
    best, weights = best_version(run), [version for version in run.weights_versions() if version <= done]
    kept = [run.weights(version) for version in weights if version in (0, best) or run.recipe.checkpoints(version)]
    kept += [run.checkpoint(version) for version in run.checkpoints() if version <= done]
    new += [path for folder in kept for path in sorted(folder.iterdir())]
    return {name: run.root / name for name in names} | {str(path.relative_to(run.root)): path for path in new}


def _policy(run: Run) -> str | None:
    """Return where the cold start left the policy; a model that was given is had where it came from."""
    if not run.recipe.cold_start or not committed_steps(run):
        return None
    return run.portable(policy_folder(run))


def _remove(store: Any, root: str, keep: Mapping[str, Path]) -> None:
    """Remove weights and checkpoints that are kept no more."""
    there = [path for kind in (WEIGHTS, CHECKPOINTS) for path in store.find(f"{root}/{kind}")]
    gone = [path for path in there if path.removeprefix(f"{root}/") not in keep]
    if gone:
        store.rm(gone)


def _fetch(store: Any, root: str, names: Mapping[str, str], hashes: Mapping[str, str], folder: Path) -> None:
    """Bring files into a folder that is not there yet, whole or not at all.

    Args:
        store: Where from.
        root: The copy's place in it.
        names: The place in the folder, by name in the copy.
        hashes: By name in the copy.
        folder: Where to.
    """
    with written_at_once(folder) as temporary:
        targets = {name: temporary / place for name, place in names.items()}
        for directory in {target.parent for target in targets.values()}:
            directory.mkdir(parents=True, exist_ok=True)
        progress = TqdmCallback(tqdm_kwargs={"desc": folder.name, "unit": " files"})
        try:
            store.get([f"{root}/{name}" for name in names], [str(path) for path in targets.values()], callback=progress)
        except FileNotFoundError as error:
            raise UserError(f"the copy of {folder.name} in {root} lacks a file: {error}") from None
        for name, target in targets.items():
            if hashes[name] and sha256(target) != hashes[name]:
                raise UserError(f"the copy of {folder.name} in {root} is damaged: {name} is not what was sent")
