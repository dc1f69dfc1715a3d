import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.samples import Sample
from trainer.tiny_policy import build_tokenizer


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer model with tied embeddings that is small enough for many forward passes."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.5,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
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
