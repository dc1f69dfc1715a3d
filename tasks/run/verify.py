"""Check that the disk still holds what the ledger says: every file of a committed step by its hash, and the rest.

Whole files may hold samples that no update can use, from a version of this project that did not look at them.
"""

import shlex
from collections.abc import Container, Iterator
from pathlib import Path

import pyarrow as pa
from safetensors import SafetensorError, safe_open

from configs.errors import UserError
from tasks.records.samples import read_samples
from tasks.records.usable import flaw_of_row
from tasks.run.directory import KNOWN, NUMBERED, SAMPLE_FILES, Run, numbered
from tasks.run.identity import identity
from tasks.run.ledger import committed_steps, read_commit
from trainer.files import sha256
from trainer.state.manifest import damaged_checkpoint


def verify(run: Run, vocabulary: Container[int] | None = None) -> list[str]:
    """Return what is wrong with a run directory, one line a file: damaged, missing, not of this run, or of no use.

    Args:
        run: The run.
        vocabulary: Its model's token ids, where they are known: samples with others are of no use.
    """
    return [*damaged_steps(run), *_unusable(run, vocabulary), *_weights(run), *_checkpoints(run), *_strangers(run)]


def unusable_samples(run: Run, step: int, vocabulary: Container[int] | None) -> dict[Path, str]:
    """Return the files of a step's samples that no update can take, each with the first reason.

    A file that can't be read at all is damaged; `damaged_steps` and the tasks' receipts find those.
    """
    found = {}
    for path in sorted(path for pattern in SAMPLE_FILES for path in run.step_file(step, "").glob(pattern)):
        try:
            rows = read_samples([path])
        except (pa.ArrowException, OSError):
            continue
        longest = run.recipe.rollout.max_response_tokens
        if why := next(filter(None, (flaw_of_row(row, vocabulary, longest) for row in rows)), None):
            found[path] = why
    return found


def is_learnt_from(run: Run, step: int) -> bool:
    """Tell whether there are weights that were made of a step's samples."""
    return run.update(step).exists() or run.commit(step).exists()


def damaged_steps(run: Run, after: int = -1) -> list[str]:
    """Return the files of committed steps after `after` that are missing or not what was committed."""
    found = []
    for step in committed_steps(run):
        if step <= after:
            continue
        try:
            files = read_commit(run, step)["files"]
        except UserError:
            found.append(f"steps/{step:06d}/commit.json is damaged: it is no record of a step")
            continue
        for name, expected in files.items():
            path = run.step_file(step, name)
            if not path.is_file():
                found.append(f"steps/{step:06d}/{name} is missing")
            elif sha256(path) != expected:
                found.append(f"steps/{step:06d}/{name} is damaged: its hash is not the one that was committed")
    return found


def damaged_weights(folder: Path) -> str | None:
    """Return what is wrong with a weights folder, or None. Each file must be as long as its header says."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return f"{folder} holds no .safetensors file"
    for file in files:
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            return f"{file} can't be read: {error}"
    return None


def _unusable(run: Run, vocabulary: Container[int] | None) -> Iterator[str]:
    for step in run.steps_begun():
        for path, why in unusable_samples(run, step, vocabulary).items():
            remedy = f"`rl-post resume {run.id}` makes the step's samples again"
            if is_learnt_from(run, step):
                again = shlex.join(["rl-post", "run", str(run.recipe_file)])
                remedy = f"later weights were made of it, so that it can't be replaced alone; `{again}` begins anew"
            yield f"steps/{step:06d}/{path.name} can't be used: {why}; {remedy}"


def _weights(run: Run) -> Iterator[str]:
    """The first weights must be there, and the last ones if they have a checkpoint; others can be made again."""
    kept = set(run.weights_versions())
    committed = committed_steps(run)
    for version in sorted({0, committed[-1]} if committed else set()):
        if version not in kept and run.recipe.checkpoints(version):
            yield f"weights/{version:06d} is missing"
    for version in sorted(kept):
        if problem := damaged_weights(run.weights(version)):
            yield f"weights/{version:06d} is damaged: {problem}"


def _checkpoints(run: Run) -> Iterator[str]:
    own = identity(run)
    for version in run.checkpoints():
        if problem := damaged_checkpoint(run.checkpoint(version), own):
            yield f"checkpoints/{version:06d} is damaged: {problem}"


def _strangers(run: Run) -> Iterator[str]:
    for path in sorted(run.root.glob("[!.]*")):
        if path.name not in KNOWN:
            yield f"{path.name} is not of this run"
    for folder in NUMBERED:
        own = {f"{number:06d}" for number in numbered(run.root / folder)}
        for path in sorted((run.root / folder).glob("[!.]*")):
            if path.name not in own:
                yield f"{folder}/{path.name} is not of this run"
    for step in committed_steps(run):
        try:
            own = {"commit.json", *read_commit(run, step)["files"]}
        except UserError:
            continue  # reported as damaged
        for path in sorted(run.step_file(step, "").glob("[!.]*")):
            if path.name not in own:
                yield f"steps/{step:06d}/{path.name} is not of this run"
