from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from configs.errors import UserError
from configs.learner import Lora
from trainer.batches.collation import collate
from trainer.batches.samples import Sample
from trainer.learner.learner import Learner
from trainer.model import lora, policy
from trainer.model.policy import Policy

MakeSamples = Callable[..., list[Sample]]
LORA = {"learner": {"lora": {"rank": 2, "alpha": 8}}}
TOKENS = collate([([1, 2, 3], [4, 5]), ([1, 2, 3], [6])])


def load(policy_dir: Path) -> Policy:
    return policy.load(policy_dir, temperature=1.0, dtype="float32")


@pytest.fixture
def adapted(policy_dir: Path) -> Policy:
    """A policy whose adapters have an effect."""
    adapted = load(policy_dir)
    lora.inject(adapted.model, Lora(rank=2), seed=0)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
    return adapted


# Injection


def test_fresh_adapters_change_nothing_and_are_all_that_is_trained(policy_dir: Path):
    fresh = load(policy_dir)
    expected, _ = fresh(TOKENS)

    lora.inject(fresh.model, Lora(rank=2), seed=0)

    assert torch.equal(fresh(TOKENS)[0], expected)
    trained = {name for name, weight in fresh.named_parameters() if weight.requires_grad}
    assert trained == {name for name, _ in fresh.named_parameters() if ".lora_" in name}
    # Two layers of seven linear layers, each with A and B.
    assert len(trained) == 2 * 7 * 2


def test_the_seed_decides_where_adapters_start_and_the_global_generator_is_left_alone(policy_dir: Path):
    before = torch.random.get_rng_state()

    starts = []
    for seed in (0, 0, 1):
        model = load(policy_dir).model
        lora.inject(model, Lora(rank=2), seed)
        starts.append(next(weight for name, weight in model.named_parameters() if "lora_A" in name))

    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_only_the_named_layers_get_adapters(policy_dir: Path):
    model = load(policy_dir).model

    lora.inject(model, Lora(rank=2, targets=("q_proj", "layers.1.mlp.up_proj")), seed=0)

    assert {name.partition(".lora_A")[0] for name, _ in model.named_parameters() if ".lora_A" in name} == {
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
        "model.layers.1.mlp.up_proj",
    }


@pytest.mark.parametrize("target", ["query", "proj", "lm_head", "embed_tokens", "mlp", "norm"])
def test_a_target_that_is_no_layer_to_be_adapted_is_refused_with_those_that_are(policy_dir: Path, target: str):
    with pytest.raises(
        UserError, match=rf"'{target}', which is not a linear layer.*down_proj, .*v_proj, or all-linear"
    ):
        lora.inject(load(policy_dir).model, Lora(targets=("q_proj", target)), seed=0)


def test_switched_off_it_is_the_policy_that_it_was(adapted: Policy, policy_dir: Path):
    adapted_logprobs, _ = adapted(TOKENS)

    with lora.switched_off(adapted):
        off, _ = adapted(TOKENS)

    assert torch.equal(off, load(policy_dir)(TOKENS)[0])
    assert torch.equal(adapted(TOKENS)[0], adapted_logprobs)
    assert not torch.equal(off, adapted_logprobs)
    assert all(weight.requires_grad == (".lora_" in name) for name, weight in adapted.named_parameters())


# Merging

W, A, B = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5], [2.0]])
STATE = {
    "layer.q_proj.base_layer.weight": W,
    "layer.q_proj.lora_A.default.weight": A,
    "layer.q_proj.lora_B.default.weight": B,
    "norm.weight": torch.ones(2),
}


def test_merged_weights_are_w_plus_scale_b_a_each_time_and_w_stays():
    before = W.clone()

    once, twice = lora.merged(STATE, scale=2.0), lora.merged(STATE, scale=2.0)

    # B A = [[0.5, -0.5], [2, -2]].
    assert once.keys() == {"layer.q_proj.weight", "norm.weight"}
    assert once["layer.q_proj.weight"].tolist() == [[2.0, 1.0], [7.0, 0.0]]
    assert torch.equal(once["layer.q_proj.weight"], twice["layer.q_proj.weight"])
    assert torch.equal(W, before)


@pytest.mark.parametrize(
    "renamed",
    [
        {"layer.q_proj.weight": W},
        {name.replace("lora_A.default", "lora_A.other"): value for name, value in STATE.items()},
        {name.replace("layer.q_proj.base", "base.q_proj.base"): value for name, value in STATE.items()},
    ],
)
def test_a_state_of_other_names_is_refused(renamed: dict[str, Tensor]):
    with pytest.raises(ValueError, match="LoRA adapters found"):
        lora.merged(renamed, scale=2.0)


# In the learner


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def test_the_engines_get_merged_weights_each_time_the_same_and_the_base_stays(
    make_learner: Callable[..., Learner], make_samples: MakeSamples, policy_dir: Path, tmp_path: Path
):
    learner = make_learner(**LORA)
    learner.update(make_samples())

    learner.save_weights(tmp_path / "once")
    learner.save_weights(tmp_path / "twice")

    base, once, twice = (weights(folder) for folder in (policy_dir, tmp_path / "once", tmp_path / "twice"))
    live = learner._policy.model.state_dict()
    assert once.keys() == twice.keys() == base.keys()
    for name, value in base.items():
        assert torch.equal(once[name], twice[name])
        layer = name.removesuffix(".weight")
        if f"{layer}.lora_A.default.weight" not in live:
            assert torch.equal(once[name], value), name
            continue
        assert torch.equal(live[f"{layer}.base_layer.weight"], value), name
        a, b = live[f"{layer}.lora_A.default.weight"], live[f"{layer}.lora_B.default.weight"]
        assert torch.equal(once[name], value + 8 / 2 * (b @ a)), name
        assert not torch.equal(once[name], value), name


def test_merged_weights_are_the_adapted_policy(adapted: Policy, policy_dir: Path, tmp_path: Path):
    policy.save(adapted, policy_dir, tmp_path / "merged", Lora(rank=2))

    assert torch.allclose(load(tmp_path / "merged")(TOKENS)[0], adapted(TOKENS)[0], atol=1e-5)


def test_the_reference_is_the_policy_without_adapters(make_learner: Callable[..., Learner], make_samples: MakeSamples):
    learner = make_learner(**LORA, algorithm={"kl": {"coefficient": 0.1}})

    kls = [learner.update(make_samples())["policy/kl"] for _ in range(3)]

    assert learner._reference is None
    assert kls[0] == 0.0 < kls[1] < kls[2]


def test_a_checkpoint_holds_adapters_only(
    make_learner: Callable[..., Learner], make_samples: MakeSamples, tmp_path: Path
):
    learner, resumed = make_learner(**LORA), make_learner(**LORA)
    learner.update(make_samples())
    learner.save_checkpoint(tmp_path / "checkpoint", "r")
    learner.save_weights(tmp_path / "expected")

    resumed.load_checkpoint(tmp_path / "checkpoint", "r")
    resumed.save_weights(tmp_path / "actual")

    assert all(".lora_" in name for name in learner._state() if name.endswith("exp_avg"))
    expected, actual = weights(tmp_path / "expected"), weights(tmp_path / "actual")
    assert all(torch.equal(actual[name], value) for name, value in expected.items())
