"""Check that the disk still holds what the ledger says: every file of a committed step by its hash, and the rest."""

from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from configs.errors import UserError
from tasks.run.directory import KNOWN, NUMBERED, Run, numbered
from tasks.run.identity import identity
from tasks.run.ledger import committed_steps, read_commit
from trainer.files import sha256
from trainer.state.manifest import damaged_checkpoint


def verify(run: Run) -> list[str]:
    """Return what is wrong with a run directory, one line a file: damaged, missing or not of this run."""
    return [*damaged_steps(run), *_weights(run), *_checkpoints(run), *_strangers(run)]


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
