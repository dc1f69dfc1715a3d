from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.batches import collate, micro_batches, rank_shares
from trainer.samples import Sample

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=40)


def test_masks_come_from_lengths_so_that_the_end_token_is_trained_once_where_it_is_the_padding_too():
    end = 0  # also what rows are padded with

    tokens = collate([([7], [5, 6, end]), ([7, 7], [5, 6, 7, 8, end])])

    assert tokens.response_mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert tokens.input_ids.tolist() == [[7, 5, 6, 0, 0, 0, 0], [7, 7, 5, 6, 7, 8, 0]]
    assert tokens.is_response.int().tolist() == [[0, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1]]


def test_an_empty_response_has_no_tokens_to_train_on():
    assert collate([([7], []), ([7], [5])]).response_mask.tolist() == [[False], [True]]


@given(LENGTHS, st.integers(1, 200))
def test_micro_batches_keep_to_the_token_budget_and_hold_each_sequence_once(lengths: list[int], budget: int):
    batches = micro_batches(lengths, budget)

    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget


@given(LENGTHS, st.integers(1, 200))
def test_micro_batches_go_from_long_to_short_sequences(lengths: list[int], budget: int):
    order = [lengths[index] for batch in micro_batches(lengths, budget) for index in batch]

    assert all(first >= second for first, second in pairwise(order))


@given(LENGTHS, st.integers(1, 6))
def test_ranks_share_all_sequences_and_differ_by_no_more_tokens_than_the_longest_has(lengths: list[int], ranks: int):
    shares = rank_shares(lengths, ranks)

    assert sorted(index for share in shares for index in share) == list(range(len(lengths)))
    token_counts = [sum(lengths[index] for index in share) for share in shares]
    assert max(token_counts) - min(token_counts) <= max(lengths)


def test_a_sample_with_fewer_log_probs_than_response_tokens_is_refused():
    with pytest.raises(ValueError, match=r"group 'q7' has 2 response_ids but 1 behaviour_logprobs"):
        Sample("q7", [1], [2, 3], [-1.0], 0, 1.0)


def test_a_sample_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match="empty prompt"):
        Sample("q7", [], [2], [-1.0], 0, 1.0)
