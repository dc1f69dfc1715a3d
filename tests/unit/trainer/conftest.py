import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from configs.schema import Recipe
from tests.unit.trainer.tiny import tiny_config
from trainer.batches.samples import Sample
from trainer.learner.learner import Learner
from trainer.model.tiny_policy import build_tokenizer


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer model with tied embeddings that is small enough for many forward passes."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    Qwen3ForCausalLM(tiny_config(len(tokenizer), tied=True)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def coin_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with an output layer of its own over four tokens, whose logits are 0.

    Fewer tokens are not enough for the check that loading makes.
    """
    folder = tmp_path_factory.mktemp("coin")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=4,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=False,
    )
    model = Qwen3ForCausalLM(config)
    torch.nn.init.zeros_(model.lm_head.weight)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_samples() -> Callable[..., list[Sample]]:
    """Groups of four samples of different lengths, the last of each group not scorable."""

    def make(groups: int = 3, seed: int = 0) -> list[Sample]:
        rng = random.Random(seed)
        samples = []
        for group in range(groups):
            prompt = [rng.randrange(60) for _ in range(rng.randint(1, 5))]
            for reward in (1.0, 0.0, rng.random(), None):
                response = [rng.randrange(60) for _ in range(rng.randint(1, 7))]
                logprobs = [-4.0 + rng.uniform(-0.5, 0.5) for _ in response]
                samples.append(Sample(f"q{group}", prompt, response, logprobs, 0, reward))
        return samples

    return make


@pytest.fixture(scope="session")
def make_learner(policy_dir: Path) -> Callable[..., Learner]:
    """A learner of a recipe whose sections are given as mappings."""

    def make(*, start: Path = policy_dir, teacher: Path | None = None, **sections: Any) -> Learner:
        optimizer = {"learning_rate": 1e-3, **sections.pop("optimizer", {})}
        return Learner(Recipe(name="test", optimizer=optimizer, **sections), start, teacher)  # pyright: ignore[reportArgumentType]

    return make
