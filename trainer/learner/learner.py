"""The learner: turns scored samples into the next version of the weights."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from configs.learner import Optimizer as OptimizerSettings
from configs.schema import Recipe
from trainer.algorithm import objective
from trainer.algorithm.aggregate import normaliser
from trainer.algorithm.batch import Batch, estimate_advantages
from trainer.algorithm.corrections import counted, rejected_before
from trainer.batches.collation import Tokens, pad
from trainer.batches.micro_batches import evaluate, own_micro_batches
from trainer.batches.minibatches import minibatches
from trainer.batches.packing import PromptResponse
from trainer.batches.samples import Sample
from trainer.learner.gradients import Experience, accumulate, critic_objectives, policy_objectives
from trainer.learner.optimizer import Optimizer
from trainer.model import lora, policy, sharding
from trainer.model.critic import Critic
from trainer.model.policy import Policy
from trainer.model.teacher import check_same_tokenizer
from trainer.model.tokens import tokens_of
from trainer.state import checkpoint
from trainer.state.export import Export
from trainer.state.weight_history import WeightHistory


class Learner:
    """One rank of the learner; all ranks make the same calls with the same arguments.

    Where a torch.distributed process group exists (gloo on CPUs, nccl on GPUs) its ranks shard the weights and the
    samples among them. On a CPU the same calls give the same weights, bit for bit.

    Args:
        recipe: decides what is computed.
        policy_dir: Hugging Face folder of the weights that the run starts from: the first policy, the fixed reference,
            and the critic's first backbone.
        teacher_dir: Hugging Face folder of the teacher, with advantage `distillation`.
        device: `cpu` or `cuda`.

    Attributes:
        version: number of updates done.

    Raises:
        UserError: if the architecture, LoRA's targets or the teacher's tokenizer don't fit.
        ValueError: if there is no teacher where the recipe needs one.
    """

    def __init__(self, recipe: Recipe, policy_dir: Path, teacher_dir: Path | None = None, device: str = "cpu") -> None:
        self.version = 0
        self._recipe = recipe
        self._algorithm = recipe.algorithm
        self._device = device
        self._start = policy_dir
        self._tokens = tokens_of(policy_dir)
        self._policy = self._load(policy_dir)
        if recipe.learner.lora:
            lora.inject(self._policy.model, recipe.learner.lora, recipe.seed)
        self._optimizers = {"policy": self._to_be_trained(self._policy, recipe.optimizer)}
        trained = [weight for weight in self._policy.parameters() if weight.requires_grad]
        self._past = WeightHistory(trained, recipe.versions_kept)
        self._reference = self._teacher = self._critic = None
        if self._algorithm.needs_reference and not recipe.learner.lora:
            self._reference = self._frozen(policy_dir)
        if self._algorithm.needs_teacher:
            if teacher_dir is None:
                raise ValueError("advantage distillation needs a teacher_dir")
            check_same_tokenizer(policy_dir, teacher_dir)
            self._teacher = self._frozen(teacher_dir)
        if self._algorithm.needs_values:
            self._critic = Critic(self._load(policy_dir))
            self._optimizers["critic"] = self._to_be_trained(self._critic, recipe.critic)

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Take the optimizer steps of all epochs and minibatches over the samples; the version advances by one.

        The gradient of each step is that of its whole minibatch, whatever the micro-batches and ranks. Old log-probs,
        reference log-probs and values are those before the first step.

        Args:
            samples: complete groups. Samples without a reward are left out.

        Returns:
            Metrics by name: means over trained tokens, unless the name says otherwise. Over several optimizer steps,
            metrics are averaged; of maxima the largest counts. `skipped` and `without_signal` count steps that were not
            taken.

        Raises:
            ValueError: if there are no samples.
            TrainingDiverged: if too many optimizer steps in a row were skipped. The learner can't be used any more.
        """
        if not samples:
            raise ValueError(f"update to version {self.version + 1} got no samples")
        self._past.keep(self.version)
        experience = self._look_at(samples)
        steps = [
            self._take_step(experience, rows)
            for rows in minibatches(
                [sample.group for sample in samples],
                epochs=self._recipe.optimizer.epochs,
                count=self._recipe.optimizer.minibatches,
                seed=self._recipe.seed,
                version=self.version,
            )
        ]
        self.version += 1
        worth = {**experience.estimate.metrics, "tokens": float(experience.estimate.mask.sum())}
        return _summary(steps) | _named("policy", worth)

    def held(self) -> list[int]:
        """Return the versions whose weights are in memory, in order: the present one and `versions_kept` before it.

        A learner that was rebuilt may have fewer.
        """
        return [*self._past.versions(), self.version]

    def at(self, version: int) -> AbstractContextManager[None]:
        """Within the block the weights are those of a held version. The block may only save or export them."""
        return nullcontext() if version == self.version else self._past.brought_back(version)

    def save_weights(self, path: Path) -> None:
        """Write the weights as a Hugging Face folder with tokenizer, config and generation config, atomically."""
        policy.save(self._policy, self._start, path, self._recipe.learner.lora)

    def export(self) -> Export:
        """Return the weights that `save_weights` writes, to be sent from memory before the next update."""
        return Export(self._policy, self._recipe.learner.lora)

    def save_checkpoint(self, path: Path, run: str) -> None:
        """Write the trained weights, the optimizers' states and the version, atomically.

        Rates, random draws and the position in the data depend only on the version and on what `run` stands for.
        """
        checkpoint.save(path, self._state(), self.version, run)

    def load_checkpoint(self, path: Path, run: str) -> None:
        """Continue from a checkpoint, as if nothing had been in between.

        Raises:
            checkpoint.IncompleteCheckpoint: if a part of it is missing or cut, or it is not of `run`; the learner is as
                before.
        """
        self.version = checkpoint.load(path, self._state(), run)

    def _look_at(self, samples: Sequence[Sample]) -> Experience:
        """Evaluate the samples with the models that the algorithm needs, and estimate advantages."""
        sequences = [(sample.prompt_ids, sample.response_ids) for sample in samples]
        number = {group: index for index, group in enumerate(dict.fromkeys(sample.group for sample in samples))}
        behaviour = pad([sample.behaviour_logprobs for sample in samples], torch.float32)
        lengths = torch.tensor([len(sample.response_ids) for sample in samples])
        mask = torch.arange(behaviour.shape[1]) < lengths[:, None]
        own = self._logprobs(self._policy, sequences) if self._algorithm.needs_own_logprobs else behaviour
        correction = self._algorithm.correction
        batch = Batch(
            rewards=torch.tensor([_number(sample.reward) for sample in samples]),
            accuracies=torch.tensor([_number(sample.accuracy) for sample in samples]),
            groups=torch.tensor([number[sample.group] for sample in samples]),
            truncated=torch.tensor([sample.truncated for sample in samples]),
            lags=torch.tensor([self.version - sample.weights_version for sample in samples]),
            mask=mask,
            old_logprobs=own if self._algorithm.needs_old else behaviour,
            reference_logprobs=self._reference_logprobs(sequences) if self._algorithm.needs_reference else None,
            teacher_logprobs=self._logprobs(self._teacher, sequences) if self._teacher else None,
            values=self._evaluate(self._critic, sequences) if self._critic else None,
        )
        rejected = rejected_before(own, behaviour, mask, correction) if correction.rejects_before else None
        worth = estimate_advantages(batch, self._algorithm, rejected)
        return Experience(sequences, behaviour, batch, worth)

    def _take_step(self, experience: Experience, rows: Sequence[int]) -> dict[str, float]:
        """One optimizer step of the policy, and of the critic if there is one, over some rows of the experience."""
        mask, longest = experience.estimate.mask, self._recipe.rollout.max_response_tokens
        mean_over = counted(mask, experience.estimate.rejected, self._algorithm.correction)
        counts = normaliser(mean_over[rows], longest)
        trained = [row for row in rows if mask[row].any()]
        passes = own_micro_batches(experience.sequences, trained, self._recipe.optimizer.micro_batch_tokens)
        means, maxima = accumulate(
            policy_objectives(self._policy, experience, passes, counts, self._algorithm, self._device), self._device
        )
        signal = self._has_signal(experience, rows, all_rejected=means["importance_used_mean"] == 0)
        step = self._optimizers["policy"].step(self.version, means["loss"], signal)
        metrics = _named("policy", objective.metrics(means, maxima) | step)
        if self._critic:
            clip = self._algorithm.gae.value_clip
            counts = normaliser(mask[rows], longest)  # Rejected samples tell of values too.
            means, _ = accumulate(
                critic_objectives(self._critic, experience, passes, counts, clip, self._device), self._device
            )
            step = self._optimizers["critic"].step(self.version, means["value_loss"], signal=bool(trained))
            metrics |= _named("critic", means | step)
        return metrics

    def _has_signal(self, experience: Experience, rows: Sequence[int], all_rejected: bool) -> bool:
        """Tell whether the policy's loss can have a gradient on a trained token of some rows."""
        mask, advantages = experience.estimate.mask[rows], experience.estimate.advantages[rows]
        of_rewards = bool((advantages[mask] != 0).any()) and not all_rejected
        return bool(mask.any()) and (self._algorithm.kl_in_loss or of_rewards)

    def _reference_logprobs(self, sequences: Sequence[PromptResponse]) -> Tensor:
        """[N, T] by the weights that the run started from; with adapters, the policy itself without them."""
        if self._reference:
            return self._logprobs(self._reference, sequences)
        with lora.switched_off(self._policy):
            return self._logprobs(self._policy, sequences)

    def _logprobs(self, of: Policy, sequences: Sequence[PromptResponse]) -> Tensor:
        return self._evaluate(lambda tokens: of(tokens)[0], sequences)

    def _evaluate(self, model: Callable[[Tokens], Tensor], sequences: Sequence[PromptResponse]) -> Tensor:
        return evaluate(model, sequences, self._recipe.optimizer.micro_batch_tokens, self._device)

    def _load(self, folder: Path) -> Policy:
        temperature, dtype = self._recipe.rollout.temperature, self._recipe.model.dtype
        return policy.load(folder, temperature=temperature, dtype=dtype, device=self._device, tokens=self._tokens)

    def _frozen(self, folder: Path) -> Policy:
        frozen = self._load(folder).requires_grad_(False)
        sharding.shard(frozen, self._device, self._recipe.learner.replicas)
        return frozen

    def _to_be_trained(self, module: nn.Module, settings: OptimizerSettings) -> Optimizer:
        if self._recipe.learner.gradient_checkpointing:
            sharding.recompute(module)
        sharding.shard(module, self._device, self._recipe.learner.replicas)
        return Optimizer(module, settings, self._recipe.steps)

    def _state(self) -> dict[str, Tensor]:
        """The live tensors of all that is trained, and of its optimizers."""
        return {
            f"{trained}.{name}": value
            for trained, optimizer in self._optimizers.items()
            for name, value in optimizer.state().items()
        }


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _named(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in metrics.items()}


def _summary(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One number for each metric of several optimizer steps. NaN stays NaN."""

    def combined(name: str) -> Tensor:
        values = torch.tensor([step[name] for step in steps], dtype=torch.float64)
        if name.endswith(("/skipped", "/without_signal")):
            return values.sum()
        return values.amax() if name.endswith("_max") else values.mean()

    return {name: combined(name).item() for name in steps[0]}
