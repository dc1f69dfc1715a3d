"""One rank of the learner, the body of a Ray actor.

It holds the policy and the optimizer in memory. Everything that it knows is also in the ledger, so a rank that was
lost comes back empty and is brought to any version by the last checkpoint and a replay of the stored batches since.

PyTorch is imported inside the methods: the flow and the tasks name this class and start without it.
"""

import logging
import os
import resource
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.rollout.samples import read_samples
from tasks.runtime.files import digest, read_json, remove, sha256
from tasks.runtime.ledger import Receipt, Run, once

if TYPE_CHECKING:
    from trainer.learner import Learner
    from trainer.samples import Sample

logger = logging.getLogger(__name__)
KEEP_CHECKPOINTS = 2
KEEP_WEIGHTS = 2  # The version in the engines and the one on its way.


class LearnerRank:
    """A rank of a run's learner."""

    def __init__(self, run: Run, rank: int) -> None:
        import torch

        torch.set_num_threads(run.recipe.learner.threads)
        self._run, self._rank = run, rank
        self._group: str | None = None
        self._learner: Learner | None = None

    def address(self) -> str:
        """Return a free address on this rank's node, for the ranks to meet at."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return f"{socket.gethostbyname(socket.gethostname())}:{probe.getsockname()[1]}"

    def group(self) -> str | None:
        """Return the address of the process group that this rank belongs to, or None."""
        return self._group

    def join(self, address: str, ranks: int) -> None:
        """Prepare to meet the other ranks. What was held before is dropped: a group works only on equal state."""
        self.stop()
        self._learner, self._group = None, address
        host, port = address.rsplit(":", 1)
        os.environ.update(WORLD_SIZE=str(ranks), RANK=str(self._rank), MASTER_ADDR=host, MASTER_PORT=port)

    def cold_start(self, base: str, dataset: Receipt) -> Receipt:
        """Fine-tune the base policy on the demonstrations. The result is cached by the content of all that it uses.

        Returns:
            `path` of the policy and the `metrics` of the fit.
        """
        from tasks.dataset.store import read_demonstrations
        from trainer import supervised

        settings = self._run.recipe.cold_start
        if settings is None:
            return {"path": base, "metrics": {}}
        code = sha256(Path(supervised.__file__))
        inputs = [Path(base).name, dataset["digest"], settings.model_dump(), self._run.recipe.seed, code]
        out = self._run.home / "cache" / "cold-start" / digest(inputs)

        def fit() -> Receipt:
            demonstrations = read_demonstrations(dataset["path"])
            remove(out)
            metrics = supervised.fit(Path(base), out, demonstrations, settings, self._run.recipe.seed)
            return {"path": str(out), "metrics": metrics}

        return once(out.with_suffix(".json"), fit)

    def update(self, step: int, policy: str, scored: Sequence[str]) -> dict[str, float]:
        """Make weights version `step` out of version `step - 1` and the scored samples, and write it to disk.

        Returns:
            The metrics of the update.
        """
        learner = self._at_version(step - 1, policy)
        metrics = learner.update(training_samples(scored))
        learner.save_weights(self._run.weights(step))
        if step % self._run.recipe.learner.checkpoint_every == 0 or step == self._run.recipe.steps:
            learner.save_checkpoint(self._run.checkpoint(step))
        if self._rank == 0:
            self._prune(step)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {**metrics, "perf/learner_peak_memory_bytes": float(peak)}

    def save_initial(self, policy: str) -> None:
        """Write weights version 0: the policy that the updates start from."""
        if not self._run.weights(0).exists():
            self._at_version(0, policy).save_weights(self._run.weights(0))

    def stop(self) -> None:
        """Leave the process group."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()

    def _at_version(self, version: int, policy: str) -> "Learner":
        """Return the learner at a version; where it is elsewhere, rebuild it from a checkpoint and by replay."""
        import torch

        from trainer.learner import Learner

        if self._learner is None or self._learner.version != version:
            recipe = self._run.recipe
            self._learner = Learner(
                Path(policy),
                Path(policy) if recipe.algorithm.kl_coefficient else None,
                recipe.algorithm,
                recipe.optimizer,
                recipe.rollout.temperature,
                recipe.model.dtype,
                recipe.seed,
                "cuda" if torch.cuda.is_available() else "cpu",
            )
            for step in range(self._load_checkpoint(self._learner, version) + 1, version + 1):
                self._learner.update(training_samples(read_json(self._run.step_file(step, "batch.json"))["scored"]))
        return self._learner

    def _load_checkpoint(self, learner: "Learner", version: int) -> int:
        """Load the newest whole checkpoint up to a version, and return its version, or 0 where there is none."""
        from trainer.checkpoint import IncompleteCheckpoint

        for done in reversed([done for done in self._run.checkpoints() if done <= version]):
            try:
                learner.load_checkpoint(self._run.checkpoint(done))
                return done
            except IncompleteCheckpoint as error:
                logger.warning("passed over a damaged checkpoint: %s", error)
        return 0

    def _prune(self, step: int) -> None:
        for version in range(1, step - KEEP_WEIGHTS + 1):
            remove(self._run.weights(version))
        for version in self._run.checkpoints()[:-KEEP_CHECKPOINTS]:
            remove(self._run.checkpoint(version))


def training_samples(scored: Sequence[str]) -> "list[Sample]":
    """Read scored samples in the learner's form."""
    from trainer.samples import Sample

    return [
        Sample(
            group=str(row["group"]),
            prompt_ids=row["prompt_ids"],
            response_ids=row["response_ids"],
            behaviour_logprobs=row["logprobs"],
            weights_version=row["weights_versions"][0],
            reward=row["reward"],
        )
        for row in read_samples(scored)
    ]
