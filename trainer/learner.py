"""The learner: turns scored samples into the next version of the weights."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from configs.algorithm import Algorithm
from configs.learner import Optimizer
from trainer import checkpoint, policy, ranks
from trainer.algorithm.advantages import group_relative
from trainer.batches import micro_batches, rank_shares
from trainer.gradients import MicroBatch, accumulate, empty_micro_batch, micro_batch
from trainer.policy import Dtype
from trainer.samples import Sample


class Learner:
    """One rank of the learner; all ranks make the same calls with the same arguments.

    Where a torch.distributed process group exists (gloo on CPUs, nccl on GPUs) its ranks shard the weights and the
    samples among them. On a CPU the same calls give the same weights, bit for bit.

    Args:
        policy_dir: Hugging Face folder of the weights to train.
        reference_dir: folder of the frozen reference; None reports no KL.
        algorithm: settings of the objective.
        optimizer: settings of AdamW.
        temperature: the temperature that responses are sampled at.
        dtype: number format of the forward pass; weights and AdamW's moments are float32.
        seed: of PyTorch's generators. Nothing draws from them today: dropout is off.
        device: `cpu` or `cuda`.

    Attributes:
        version: number of updates done.

    Raises:
        ValueError: if there is a KL coefficient but no reference.
    """

    def __init__(
        self,
        policy_dir: Path,
        reference_dir: Path | None,
        algorithm: Algorithm,
        optimizer: Optimizer,
        temperature: float,
        dtype: Dtype,
        seed: int,
        device: str = "cpu",
    ) -> None:
        if algorithm.kl_coefficient > 0 and reference_dir is None:
            raise ValueError(f"algorithm.kl_coefficient is {algorithm.kl_coefficient}, but there is no reference_dir")
        torch.manual_seed(seed)
        self.version = 0
        self._algorithm = algorithm
        self._settings = optimizer
        self._device = device
        self._tokenizer_dir = policy_dir
        self._policy = policy.load(policy_dir, temperature=temperature, dtype=dtype, device=device)
        self._reference = None
        if reference_dir is not None:
            self._reference = policy.load(reference_dir, temperature=temperature, dtype=dtype, device=device)
            self._reference.requires_grad_(False)
        self._adamw = checkpoint.adamw(self._policy, optimizer.betas, optimizer.weight_decay)

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Take one optimizer step over all samples, which advances the version by one.

        The gradient is that of the whole batch, whatever the micro-batches and ranks. If it or the loss is not finite,
        the weights stay as they are, `policy/skipped` is 1 and the version advances all the same.

        Args:
            samples: complete groups; those without a reward only take part in nothing.

        Returns:
            Metrics by name: means over trained tokens, unless the name says otherwise. `policy/kl` is there only with
            a reference.

        Raises:
            ValueError: if there are no samples.
        """
        if not samples:
            raise ValueError(f"update to version {self.version + 1} got no samples")
        number = {group: index for index, group in enumerate(dict.fromkeys(sample.group for sample in samples))}
        advantages = group_relative(
            torch.tensor([math.nan if sample.reward is None else sample.reward for sample in samples]),
            torch.tensor([number[sample.group] for sample in samples]),
            std_normalised=self._algorithm.std_normalised,
        )
        token_count = sum(
            len(sample.response_ids) for sample, scored in zip(samples, advantages.scored, strict=True) if scored
        )
        means, maxima = accumulate(
            self._policy,
            self._reference,
            self._own_share(samples, advantages.values, advantages.scored),
            self._algorithm,
            token_count,
            ranks.count(),
        )
        metrics = ranks.reduce(means, self._device) | ranks.reduce(maxima, self._device, largest=True)
        metrics |= self._step(loss_is_finite=math.isfinite(metrics["loss"]))
        metrics |= {"zero_variance_share": advantages.zero_variance_share, "tokens": float(token_count)}
        self.version += 1
        return {f"policy/{name}": value for name, value in metrics.items()}

    def save_weights(self, path: Path) -> None:
        """Write the weights as a Hugging Face folder with tokenizer, config and generation config, at once."""
        policy.save(self._policy, self._tokenizer_dir, path)

    def save_checkpoint(self, path: Path) -> None:
        """Write weights, optimizer state and version, at once."""
        checkpoint.save(path, self._policy, self._adamw, self.version)

    def load_checkpoint(self, path: Path) -> None:
        """Continue from a checkpoint, as if nothing had been in between.

        Raises:
            checkpoint.IncompleteCheckpoint: if a part of it is missing or cut; the learner is as before.
        """
        self.version = checkpoint.load(path, self._policy, self._adamw)

    def _own_share(self, samples: Sequence[Sample], advantages: Tensor, scored: Tensor) -> list[MicroBatch]:
        """This rank's micro-batches; every rank gets as many, since all must take part in each pass."""
        lengths = [len(sample.prompt_ids) + len(sample.response_ids) for sample in samples]
        budget = self._settings.micro_batch_tokens
        plans = [
            [[share[i] for i in rows] for rows in micro_batches([lengths[i] for i in share], budget)]
            for share in rank_shares(lengths, ranks.count())
        ]
        own = [
            micro_batch([samples[i] for i in rows], advantages[rows], scored[rows], self._device)
            for rows in plans[ranks.own()]
        ]
        missing = max(len(plan) for plan in plans) - len(own)
        return own + [empty_micro_batch(self._device)] * missing

    def _step(self, loss_is_finite: bool) -> dict[str, float]:
        """Clip the accumulated gradient, step if all is finite, and clear it."""
        parameters = list(self._policy.parameters())
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        norm = getattr(norm, "full_tensor", lambda: norm)()
        learning_rate = self._learning_rate()
        # A NaN log-prob gives a NaN loss, but no gradient: it falls out of the clamp's range.
        finite = loss_is_finite and bool(norm.isfinite())
        if finite:
            clip_grads_with_norm_(parameters, self._settings.max_grad_norm, norm)
            self._adamw.param_groups[0]["lr"] = learning_rate
            self._adamw.step()
        self._adamw.zero_grad()
        return {"grad_norm": norm.item(), "learning_rate": learning_rate, "skipped": float(not finite)}

    def _learning_rate(self) -> float:
        """Linear warm-up over the first versions, then constant."""
        warmup = self._settings.warmup_steps
        return self._settings.learning_rate * min(1.0, (self.version + 1) / warmup if warmup else 1.0)
