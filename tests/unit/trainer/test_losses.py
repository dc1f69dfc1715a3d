from math import inf, log, nan

import pytest
import torch
from torch import Tensor

from configs.algorithm import Algorithm, Dppo, LossName, Sapo
from trainer.algorithm.aggregate import normaliser, token_mean
from trainer.algorithm.losses import LOSSES, TokenLoss

CLIP = Algorithm(clip_low=0.2, clip_high=0.2)
SETTINGS = {name: Algorithm(loss=name, advantage="accepted" if name == "sft" else "grpo") for name in LOSSES}
EVERY = pytest.mark.parametrize("name", sorted(LOSSES))


def loss_of(ratios: list[float], advantages: list[float], settings: Algorithm = CLIP) -> TokenLoss:
    logprobs = torch.tensor([[log(ratio) - 10 for ratio in ratios]], dtype=torch.float64)
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    old = torch.full_like(logprobs, -10.0)
    return LOSSES[settings.loss](logprobs, old, torch.tensor([advantages], dtype=torch.float64), mask, settings)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.5, 1, -1.2, True),
        (0.5, 1, -0.5, False),
        (1.5, -1, 1.5, False),
        (0.5, -1, 0.8, True),
        (10, -1, 10, False),
        (10, 1, -1.2, True),
    ],
)
def test_the_clip_takes_the_pessimistic_bound(ratio: float, advantage: float, loss: float, clipped: bool):
    result = loss_of([ratio], [advantage])

    assert result.loss.item() == pytest.approx(loss)
    assert result.clipped.item() is clipped


def test_the_dual_clip_bounds_the_loss_of_negative_advantages_only():
    dual = Algorithm(clip_low=0.2, clip_high=0.2, dual_clip=3)

    result = loss_of([1.5, 0.5, 1.5, 0.5, 10, 10], [1, 1, -1, -1, -1, 1], dual)

    assert result.loss.tolist() == [pytest.approx([-1.2, -0.5, 1.5, 0.8, 3.0, -1.2])]
    assert result.clipped.tolist() == [[True, False, False, True, True, True]]


def test_the_upper_bound_is_set_apart_from_the_lower_one():
    higher = Algorithm(clip_low=0.2, clip_high=0.28)

    assert loss_of([2.0, 0.1], [1, -1], higher).loss.tolist() == [pytest.approx([-1.28, 0.8])]


def test_token_ratios_and_the_ratio_of_the_sequence():
    ratios, advantages = [1.15, 0.85, 1.6], [1.0, 1.0, 1.0]

    # GRPO: -(1.15 + 0.85 + 1.2) / 3; the product of the ratios, 1.564, would be clipped to -1.2.
    assert loss_of(ratios, advantages).loss.mean().item() == pytest.approx(-1.066667)
    # GSPO: the geometric mean, 1.564 ** (1/3).
    gspo = loss_of(ratios, advantages, Algorithm(loss="gspo", clip_low=0.2, clip_high=0.2))
    assert gspo.ratio.tolist() == [pytest.approx([1.160768] * 3)]
    assert gspo.loss.mean().item() == pytest.approx(-1.160768)


def test_gspo_clips_the_whole_sequence_and_takes_its_gradient_away():
    logprobs = torch.tensor([[0.5, 0.0]], requires_grad=True)  # geometric mean exp(0.25) = 1.284 > 1.0004
    mask = torch.ones(1, 2, dtype=torch.bool)
    settings = Algorithm(loss="gspo", clip_low=3e-4, clip_high=4e-4)

    result = LOSSES["gspo"](logprobs, torch.zeros(1, 2), torch.ones(1, 2), mask, settings)
    result.loss.sum().backward()

    assert isinstance(logprobs.grad, Tensor)
    assert result.loss.tolist() == [pytest.approx([-1.0004, -1.0004])]
    assert logprobs.grad.tolist() == [[0, 0]]


def test_cispo_clips_the_weight_and_keeps_the_gradient_of_every_token():
    logprobs = torch.tensor([[log(0.9), log(0.3), log(0.1)]], requires_grad=True)
    old = torch.tensor([[log(0.3), log(0.3), log(0.2)]])  # ratios 3, 1, 0.5
    settings = Algorithm(loss="cispo", clip_low=1, clip_high=1)

    result = LOSSES["cispo"](logprobs, old, torch.tensor([[1.0, 1, -1]]), torch.ones(1, 3).bool(), settings)
    result.loss.sum().backward()

    assert isinstance(logprobs.grad, Tensor)
    assert result.loss.tolist() == [pytest.approx([-2 * log(0.9), -log(0.3), 0.5 * log(0.1)])]
    assert logprobs.grad.tolist() == [pytest.approx([-2, -1, 0.5])]
    assert result.clipped.tolist() == [[True, False, False]]


def test_sapo_closes_its_gate_smoothly_and_faster_for_negative_advantages():
    settings = Algorithm(loss="sapo", sapo=Sapo(temperature_positive=1, temperature_negative=2))

    result = loss_of([1, 2, 2], [1, 1, -1], settings)

    # 4/τ σ(τ (w - 1)): 4 σ(0) = 2; 4 σ(1) = 2.924234; 2 σ(2) = 1.761594.
    assert result.loss.tolist() == [pytest.approx([-2, -2.924234, 1.761594], abs=1e-6)]


def test_policy_gradient_and_sft_are_negative_log_likelihoods_weighted_or_not():
    assert loss_of([1], [0.5], SETTINGS["policy_gradient"]).loss.item() == pytest.approx(5)  # -0.5 * -10
    assert loss_of([1], [0.5], SETTINGS["sft"]).loss.item() == pytest.approx(10)


@pytest.mark.parametrize(
    ("old", "new", "advantage", "blocked"),
    [
        (0.5, 0.7, 1, True),  # 0.2 further from the old policy, and on its way out
        (0.5, 0.7, -1, False),  # on its way back
        (0.5, 0.6, 1, False),  # ratio 1.2, total variation 0.1
        (0.001, 0.01, 1, False),  # ratio 10, which a clip would take away, but hardly any probability moved
        (0.9, 0.7, -1, True),
        (0.9, 0.7, 1, False),
    ],
)
def test_dppo_blocks_what_leaves_the_trust_region_by_total_variation(old, new, advantage, blocked: bool):
    settings = Algorithm(loss="dppo", dppo=Dppo(divergence="tv", threshold=0.15))

    result = LOSSES["dppo"](
        torch.tensor([[log(new)]]),
        torch.tensor([[log(old)]]),
        torch.tensor([[float(advantage)]]),
        torch.tensor([[True]]),
        settings,
    )

    assert result.clipped.item() is blocked
    assert result.loss.item() == pytest.approx(0 if blocked else -new / old * advantage)


@pytest.mark.parametrize(("threshold", "blocked"), [(0.24, True), (0.25, False)])
def test_dppo_by_the_kl_of_the_token_against_all_others(threshold: float, blocked: bool):
    # 0.99 ln(0.99/0.75) + 0.01 ln(0.01/0.25) = 0.2427
    result = LOSSES["dppo"](
        torch.tensor([[log(0.75)]]),
        torch.tensor([[log(0.99)]]),
        torch.tensor([[-1.0]]),
        torch.tensor([[True]]),
        Algorithm(loss="dppo", dppo=Dppo(divergence="kl", threshold=threshold)),
    )

    assert result.clipped.item() is blocked


@EVERY
def test_the_ratio_is_against_the_old_log_prob_and_not_against_itself(name: LossName):
    result = LOSSES[name](
        torch.tensor([[-0.5]]), torch.tensor([[-1.0]]), torch.ones(1, 1), torch.tensor([[True]]), SETTINGS[name]
    )

    assert result.ratio.item() == pytest.approx(1.648721)  # exp(0.5)


@EVERY
def test_the_on_policy_first_step_has_ratio_exactly_one_and_clips_nothing(name: LossName):
    logprobs = torch.tensor([[-0.3, -2.0, -17.123]])
    mask = torch.ones(1, 3, dtype=torch.bool)

    result = LOSSES[name](logprobs, logprobs.clone(), torch.tensor([[1.0, -1, 2]]), mask, SETTINGS[name])

    assert result.ratio.tolist() == [[1.0, 1.0, 1.0]]
    assert not result.clipped.any()


@EVERY
def test_on_policy_every_loss_has_the_gradient_of_the_plain_policy_gradient(name: LossName):
    logprobs = torch.tensor([[-0.3, -2.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    advantages = torch.tensor([[1.5, 1.5]], dtype=torch.float64)

    LOSSES[name](logprobs, logprobs.detach(), advantages, mask, SETTINGS[name]).loss.sum().backward()

    assert isinstance(logprobs.grad, Tensor)
    expected = [-1.0, -1.0] if name == "sft" else [-1.5, -1.5]
    assert logprobs.grad.tolist() == [pytest.approx(expected)]


def loss_and_gradient(name: LossName, policy: list[float], old: list[float], advantages: list[float], mask: list[bool]):
    logprobs = torch.tensor([policy], dtype=torch.float32, requires_grad=True)
    mask_tensor = torch.tensor([mask])
    result = LOSSES[name](logprobs, torch.tensor([old]), torch.tensor([advantages]), mask_tensor, SETTINGS[name])
    loss = token_mean(result.loss, mask_tensor, normaliser(mask_tensor, 1))
    loss.backward()
    assert isinstance(logprobs.grad, Tensor)
    return result, loss.item(), logprobs.grad[0].tolist()


@EVERY
@pytest.mark.parametrize("poison", [-3.0, -inf, nan])
def test_a_masked_token_can_not_poison_loss_or_gradient(name: LossName, poison: float):
    _, loss, gradient = loss_and_gradient(name, [poison, -1], [-92, -1], [0, 1], [False, True])

    # At ratio 1, A = 1 and π = 1/e: SAPO's gate is at half of its 4.
    assert loss == pytest.approx({"sapo": -2.0, "cispo": 1.0, "policy_gradient": 1.0, "sft": 1.0}.get(name, -1.0))
    assert gradient == [0, -1]


@EVERY
def test_a_ratio_that_would_overflow_is_clamped_and_reported_raw(name: LossName):
    result, loss, gradient = loss_and_gradient(name, [-3, -1], [-92, -1], [1, 1], [True, True])

    # exp(89) does not fit into float32.
    assert loss == pytest.approx(loss) and abs(loss) < inf
    assert all(abs(value) < inf for value in gradient)
    assert result.log_ratio[0].tolist() == [89, 0]


def test_the_clip_of_a_clamped_ratio():
    _, loss, gradient = loss_and_gradient("clip", [-3, -1], [-92, -1], [1, 1], [True, True])

    assert loss == pytest.approx(-(1.28 + 1) / 2)
    assert gradient == [0, -0.5]


@EVERY
def test_a_batch_without_trained_tokens_has_loss_and_gradient_zero(name: LossName):
    _, loss, gradient = loss_and_gradient(name, [-3, -1], [-92, nan], [1, nan], [False, False])

    assert loss == 0
    assert gradient == [0, 0]


@EVERY
@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_gradients_agree_with_finite_differences(name: LossName, dual_clip: float | None):
    generator = torch.Generator().manual_seed(3)
    old = -3 + torch.randn(4, 5, generator=generator, dtype=torch.float64)
    policy = (old + 0.7 * torch.randn(4, 5, generator=generator, dtype=torch.float64)).requires_grad_()
    advantages = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    mask = torch.rand(4, 5, generator=generator) < 0.8
    settings = SETTINGS[name].model_copy(update={"dual_clip": dual_clip})

    (gradient,) = torch.autograd.grad(LOSSES[name](policy, old, advantages, mask, settings).loss.sum(), policy)
    # CISPO's weight is a constant by definition, which finite differences can't know.
    weight = LOSSES["cispo"](policy, old, advantages, mask, settings).ratio
    weight = weight.clamp(1 - settings.clip_low, 1 + settings.clip_high)

    def loss(logprobs: Tensor) -> Tensor:
        if name == "cispo":
            return torch.where(mask, -weight * advantages * logprobs, 0.0).sum()
        return LOSSES[name](logprobs, old, advantages, mask, settings).loss.sum()

    assert torch.autograd.gradcheck(loss, (policy,), atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(loss(policy), policy)[0], gradient)
