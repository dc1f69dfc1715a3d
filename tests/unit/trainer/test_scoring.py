from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.model import scoring
from trainer.model.scoring import score, score_in_chunks

V, H = 50, 8


@pytest.mark.parametrize(("temperature", "logprob"), [(0.6, -0.202573), (0.5, -0.142932), (1.0, -0.407606)])
def test_logits_are_divided_by_the_sampling_temperature(temperature: float, logprob: float):
    logprobs, _ = score(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), temperature)

    assert logprobs.item() == pytest.approx(logprob, abs=1e-6)


def test_log_probs_of_bfloat16_logits_are_float32():
    logits = torch.tensor([[10, 9.9, 0, -3]], dtype=torch.bfloat16)

    logprobs, _ = score(logits, torch.tensor([0]), 1.0)

    assert logprobs.dtype == torch.float32
    # 9.9 is 9.875 in bfloat16: -ln(1 + e^-0.125 + e^-10 + e^-13); a softmax in bfloat16 gives -0.632813.
    assert logprobs.item() == pytest.approx(-0.632624, abs=1e-6)


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=5),
    st.floats(0.1, 2.0),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_log_probs_are_never_above_zero(logits: list[float], temperature: float, dtype: torch.dtype):
    logprobs, _ = score(torch.tensor([logits], dtype=dtype), torch.tensor([0]), temperature)

    assert logprobs.item() <= 0


def test_entropy_is_that_of_the_distribution_at_the_temperature():
    _, entropy = score(torch.tensor([[0.0, 0.0], [2 * log(9), 0.0]]), torch.tensor([0, 0]), 2.0)

    assert entropy.tolist() == pytest.approx([log(2), -(0.9 * log(0.9) + 0.1 * log(0.1))])


def test_a_token_that_can_not_come_adds_nothing_to_the_entropy():
    _, entropy = score(torch.tensor([[0.0, 0.0, -torch.inf]]), torch.tensor([0]), 1.0)

    assert entropy.item() == pytest.approx(log(2))


@pytest.mark.parametrize(("token", "logprob"), [(0, -0.407606), (1, -1.407606), (2, -2.407606)])
def test_u12_a_row_that_is_no_token_has_no_share_of_the_softmax(token: int, logprob: float):
    logits = torch.tensor([[-1.0, -2.0, -3.0, 0.0]])

    logprobs, entropy = score(logits, torch.tensor([token]), 1.0, unused=torch.tensor([3]))
    without, its_entropy = score(logits[:, :3], torch.tensor([token]), 1.0)

    assert logprobs.item() == pytest.approx(logprob, abs=1e-6)
    assert torch.equal(logprobs, without) and torch.equal(entropy, its_entropy)


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=3, max_size=8),
    st.sets(st.integers(0, 7), max_size=7),
    st.floats(0.1, 2.0),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_u12_padding_at_any_place_changes_neither_values_nor_gradients(
    real: list[float], places: set[int], temperature: float, dtype: torch.dtype
):
    padded = sorted(place for place in places if place < len(real) + len(places))
    rows = [row for row in range(len(real) + len(padded)) if row not in padded]
    logits = torch.full((1, len(real) + len(padded)), 60.0, dtype=dtype)
    logits[0, rows] = torch.tensor(real, dtype=dtype)
    with_padding, alone = logits.clone().requires_grad_(), logits[:, rows].clone().requires_grad_()

    ours, entropy = score(with_padding, torch.tensor([rows[1]]), temperature, torch.tensor(padded, dtype=torch.int64))
    theirs, its_entropy = score(alone, torch.tensor([1]), temperature)
    (gradient,) = torch.autograd.grad(ours.sum(), with_padding)
    (expected,) = torch.autograd.grad(theirs.sum(), alone)

    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, its_entropy, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradient[:, rows], expected, atol=1e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-3)
    assert (gradient[:, padded] == 0).all()


def test_u12_an_id_that_was_sampled_although_it_is_no_token_makes_nothing_nan():
    logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)

    logprobs, entropy = score(logits, torch.tensor([2]), 1.0, unused=torch.tensor([2]))
    logprobs.exp().sum().backward()

    assert logprobs.isfinite().all() and logprobs.exp().item() == 0 and entropy.isfinite().all()
    assert logits.grad is not None and logits.grad.isfinite().all()


class LargestTensor(TorchDispatchMode):
    """Elements of the largest tensor that any operation, forward or backward, returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("count", [0, 1, 9, 10, 37])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("unused", [None, torch.tensor([3, V - 1])], ids=["all tokens", "some rows are no tokens"])
def test_chunks_give_the_same_as_all_logits_at_once(
    monkeypatch: pytest.MonkeyPatch, count: int, bias: bool, unused: torch.Tensor | None
):
    torch.manual_seed(0)
    head = nn.Linear(H, V, bias=bias, dtype=torch.float64)
    hidden = torch.randn(count, H, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(3, (count,))
    weights = torch.randn(count, dtype=torch.float64)
    inputs = [hidden, *head.parameters()]
    logprobs, entropies = score(head(hidden), targets, 0.7, unused)
    expected = torch.autograd.grad((logprobs * weights).sum(), inputs)
    monkeypatch.setitem(scoring.CHUNK_BYTES, "cpu", 9 * V * 4)  # 9 tokens

    chunked, chunked_entropies = score_in_chunks(head, hidden, targets, 0.7, unused)

    torch.testing.assert_close(chunked, logprobs, atol=1e-12, rtol=0)
    torch.testing.assert_close(chunked_entropies, entropies, atol=1e-12, rtol=0)
    actual = torch.autograd.grad((chunked * weights).sum(), inputs)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_no_tensor_of_tokens_by_vocabulary_exists_in_the_forward_or_the_backward_pass(monkeypatch: pytest.MonkeyPatch):
    head = nn.Linear(H, V, bias=False)
    hidden = torch.randn(90, H, requires_grad=True)
    monkeypatch.setitem(scoring.CHUNK_BYTES, "cpu", 10 * V * 4)

    with LargestTensor() as largest:
        logprobs, _ = score_in_chunks(head, hidden, torch.zeros(90, dtype=torch.int64), 1.0)
        logprobs.sum().backward()

    assert largest.elements == max(10 * V, 90 * H)
    assert hidden.grad is not None
