"""One rank of the learner, the body of a Ray actor.

It holds the policy and the optimizer in memory. The ledger can restore both: a lost rank comes back empty, loads the
last checkpoint, and replays the batches stored since, up to any version.

PyTorch is imported inside the methods, so that the flow and the tasks can import this class without it.
"""

import logging
import os
import resource
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from configs.schema import Recipe
from tasks.processes.learner_group import learner_accelerator
from tasks.processes.network import interface_of, own_address
from tasks.processes.own_devices import show_own_devices
from tasks.records.samples import raw_accuracy, read_samples
from tasks.reward.dynamic_sampling import learnt_from
from tasks.run.directory import Run, cold_starts_in, models_in
from tasks.run.events import record
from tasks.run.identity import identity
from tasks.run.ledger import Receipt, best_version, once
from tasks.server.client import Endpoint, WeightsNotUpdated
from trainer.files import digest, read_json, remove, sha256

if TYPE_CHECKING:
    from tasks.weights.from_memory import Sender
    from trainer.batches.samples import Sample
    from trainer.learner.learner import Learner

logger = logging.getLogger(__name__)
KEEP_CHECKPOINTS = 2


class LearnerRank:
    """A rank of a run's learner."""

    def __init__(self, run: Run, rank: int) -> None:
        import torch

        torch.set_num_threads(run.recipe.learner.threads)
        if run.recipe.learner.deterministic:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS reads it when it starts.
            torch.use_deterministic_algorithms(True)
        self._run, self._rank = run, rank
        self._device = "cuda" if run.recipe.learner.gpus else "cpu"
        show_own_devices(learner_accelerator(run))
        self._door: socket.socket | None = None
        self._group: str | None = None
        self._learner: Learner | None = None
        self._sender: Sender | None = None

    def use_devices(self, devices: dict[str, str]) -> None:
        """Set the variable that names this rank's GPU. PyTorch reads it once, when it first needs a GPU."""
        os.environ.update(devices)

    def address(self) -> str:
        """Open the rendezvous for all ranks on this rank, rank 0, and return its address."""

        from trainer.distributed import open_rendezvous

        self._door = open_rendezvous(own_address())
        host, port, *_ = self._door.getsockname()
        return f"{host}:{port}"

    def group(self) -> str | None:
        """Return the address of the process group that this rank belongs to, or None."""
        return self._group

    def host(self) -> str:
        """Return the address of this rank's node."""
        return own_address()

    def held(self) -> tuple[int, ...]:
        """Return the weights versions that this rank has in memory."""
        return tuple(self._learner.held()) if self._learner else ()

    def join(self, address: str, ranks: int) -> None:
        """Join the other ranks' process group. The present learner is dropped: a group works only on equal state."""
        from trainer.distributed import join_group

        self.stop()
        if interface := interface_of(own_address()):
            for library in ("GLOO", "NCCL"):
                os.environ.setdefault(f"{library}_SOCKET_IFNAME", interface)
        door, self._door = self._door, None
        # A little less than the caller's limit, so that the error that names the missing rank comes first.
        limit = 0.8 * self._run.recipe.timeouts.answer
        join_group(address, self._rank, ranks, self._device, limit, door)
        self._group = address

    def cold_start(self, base: str, dataset: Receipt) -> Receipt:
        """Fine-tune the base policy on the demonstrations. The result is cached by the content of its inputs.

        Returns:
            `path` of the policy and the `metrics` of the fit.
        """
        from tasks.dataset.store import read_demonstrations
        from trainer.learner import optimizer, supervised

        settings = self._run.recipe.cold_start
        if settings is None:
            return {"path": base, "metrics": {}}
        code = [sha256(Path(str(module.__file__))) for module in (supervised, optimizer)]
        inputs = [Path(base).name, dataset["digest"], settings.model_dump(), self._run.recipe.seed, code]
        out = cold_starts_in(self._run.home) / digest(inputs)

        def fit() -> Receipt:
            self.stop()  # the other ranks don't take part
            demonstrations = read_demonstrations(dataset["path"])
            remove(out)
            metrics = supervised.fit(Path(base), out, demonstrations, settings, self._run.recipe.seed)
            return {"path": str(out), "metrics": metrics}

        return once(out.with_suffix(".json"), fit)

    def update(self, step: int, policy: str, scored: Sequence[str]) -> dict[str, float]:
        """Make weights version `step` out of version `step - 1` and the scored samples.

        It is written to disk unless the engines get it from memory.

        Returns:
            The metrics of the update.
        """
        learner = self._at_version(step - 1, policy)
        self._learner = None  # If the update fails half-way, the learner has no valid version.
        metrics = learner.update(training_samples(scored, self._run.recipe))
        self._learner = learner
        if self._run.recipe.weight_sync.via == "disk":
            learner.save_weights(self._run.weights(step))
        self._rest()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {**metrics, "perf/learner_peak_memory_bytes": float(peak)}

    def save_checkpoint(self, version: int, policy: str) -> None:
        """Write the whole state at a version, and remove checkpoints that are no longer needed."""
        self._at_version(version, policy).save_checkpoint(self._run.checkpoint(version), identity(self._run))
        if self._rank == 0:
            self._prune(version)
        self._rest()

    def save_weights(self, version: int, policy: str) -> None:
        """Write a weights version to disk if it is not there; 0 is the policy that the updates start from."""
        if not self._run.weights(version).exists():
            learner = self._holding(version, policy)
            with learner.at(version):
                learner.save_weights(self._run.weights(version))
            self._rest()

    def hold(self, version: int, policy: str) -> None:
        """Bring a weights version into memory, by replay if needed."""
        self._holding(version, policy)

    def send_weights(self, version: int, policy: str, engines: Sequence[Sequence[Endpoint]]) -> str | None:
        """Bring running engines to a weights version from memory. All ranks gather the weights.

        Args:
            version: The version.
            policy: The folder of the policy that the updates started from.
            engines: For each rank, the engines that it sends to.

        Returns:
            None, or why some engine of this rank lacks the version. Ask each engine what it reports before it is used.

        Raises:
            IncompleteExport: what would be sent is not what the weights folders hold; no engine was changed.
        """
        from tasks.weights.from_memory import Sender
        from trainer.state.export import check_complete

        learner = self._holding(version, policy)
        with learner.at(version):
            export = learner.export()
            described = export.described()
            check_complete(described, self._run.weights(0))
            tensors = export.tensors()
            try:
                if own := engines[self._rank]:
                    self._sender = self._sender or Sender(self._run.recipe)
                    self._sender.send(tensors, [tensor.nbytes for _, tensor in described], version, own)
            except WeightsNotUpdated as error:  # Not raised: the other ranks still serve their engines.
                return str(error)
            finally:
                for _ in tensors:
                    pass  # All ranks must gather, to the last tensor.
                self._rest()
        return None

    def stop(self) -> None:
        """Leave the process group, and drop the learner that was sharded over it."""
        from trainer.distributed import leave_group

        if self._sender:
            self._sender.close()
        self._learner = self._group = self._sender = None
        leave_group()

    def _holding(self, version: int, policy: str) -> "Learner":
        """Return the learner at a version, or at a later one if it still has this version's weights."""
        return self._learner if self._learner and version in self.held() else self._at_version(version, policy)

    def _at_version(self, version: int, policy: str) -> "Learner":
        """Return the learner at a version. If it is behind, it replays. If it is ahead or lost, it is rebuilt first."""
        learner, self._learner = self._learner, None  # If a replay fails half-way, the learner has no valid version.
        if learner is None or learner.version > version:
            del learner  # Its memory is needed.
            learner = self._rebuilt(version, policy)
        for step in range(learner.version + 1, version + 1):
            names = read_json(self._run.batch(step))["scored"]
            stored = [str(self._run.step_file(step, name)) for name in names]
            learner.update(training_samples(stored, self._run.recipe))
        self._learner = learner
        return learner

    def _rebuilt(self, version: int, policy: str) -> "Learner":
        """Return a learner so far behind `version` that the replay also restores the older versions kept in memory."""
        from trainer.learner.learner import Learner

        learner = Learner(self._run.recipe, Path(policy), self._teacher(), self._device)
        checkpoint = self._load_checkpoint(learner, version - self._run.recipe.versions_kept)
        if version > 0 and self._rank == 0:
            record(self._run.events, "learner rebuilt", version=version, checkpoint=checkpoint)
        return learner

    def _teacher(self) -> Path | None:
        from configs.schema import Model
        from trainer.model.pretrained import materialise

        teacher = self._run.recipe.algorithm.teacher
        return materialise(Model(path=teacher), models_in(self._run.home)) if teacher else None

    def _load_checkpoint(self, learner: "Learner", version: int) -> int:
        """Load the newest intact checkpoint up to a version, and return its version; 0 if there is none."""
        from trainer.state.checkpoint import IncompleteCheckpoint

        for done in reversed([done for done in self._run.checkpoints() if done <= version]):
            try:
                learner.load_checkpoint(self._run.checkpoint(done), identity(self._run))
                return done
            except IncompleteCheckpoint as error:
                logger.warning("passed over a damaged checkpoint: %s", error)
        return 0

    def _rest(self) -> None:
        """Free the GPU memory that PyTorch caches, if an engine shares this GPU."""
        if self._run.recipe.engine.colocated:
            import torch

            torch.cuda.empty_cache()

    def _prune(self, step: int) -> None:
        best = best_version(self._run)
        oldest = step - self._run.recipe.versions_kept  # A lost learner is rebuilt from there.
        for version in [done for done in self._run.checkpoints() if done <= oldest][:-KEEP_CHECKPOINTS]:
            if version != best:
                remove(self._run.checkpoint(version))


def training_samples(scored: Sequence[str], recipe: Recipe) -> "list[Sample]":
    """Read the scored samples that an update takes, in the learner's form.

    One that was given up has no token and no reward. It gets a token to compute, which nothing is learnt from: its
    group stays as large as the others, and a batch of nothing else is a step without signal.
    """
    from trainer.batches.samples import Sample

    return [
        Sample(
            group=str(row["group"]),
            prompt_ids=row["prompt_ids"],
            response_ids=row["response_ids"] or row["prompt_ids"][-1:],
            behaviour_logprobs=row["logprobs"] or [0.0],
            weights_version=next(iter(row["weights_versions"]), 0),
            reward=row["reward"],
            accuracy=raw_accuracy(row),
            truncated=row["finish_reason"] == "length",
        )
        for row in learnt_from(recipe, read_samples(scored))
    ]
