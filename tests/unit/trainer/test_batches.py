from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.batches.collation import collate, micro_batches, rank_shares
from trainer.batches.packing import PromptResponse, pack
from trainer.batches.samples import Sample


def sequences_of(groups: Sequence[tuple[int, Sequence[int]]]) -> list[PromptResponse]:
    """Groups of a prompt length and response lengths, each with a prompt of its own."""
    return [
        ([group] * prompt, [0] * response) for group, (prompt, responses) in enumerate(groups) for response in responses
    ]


SEQUENCES = st.lists(
    st.tuples(st.integers(1, 20), st.lists(st.integers(0, 30), min_size=1, max_size=8)), min_size=1, max_size=6
).flatmap(lambda groups: st.permutations(sequences_of(groups)))


def tokens(sequences: Sequence[PromptResponse]) -> int:
    return len(pack(sequences).input_ids)


def test_masks_come_from_lengths_so_that_the_end_token_is_trained_once_where_it_is_the_padding_too():
    end = 2  # of a model whose padding token is its end token

    batch = collate([([7], [5, 6, end]), ([7, 7], [5, 6, 7, 8, end])])

    assert batch.response_mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.targets.tolist() == [5, 6, end, 5, 6, 7, 8, end]


def test_an_empty_response_has_no_tokens_to_train_on():
    assert collate([([7], []), ([7], [5])]).response_mask.tolist() == [[False], [True]]


def test_values_of_response_tokens_go_to_the_rows_of_their_sequences_with_zero_on_padding():
    batch = collate([([7], [5, 6]), ([8], []), ([7], [4, 3, 2])])

    rows = batch.to_rows(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))

    assert rows.tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5]]


@given(SEQUENCES, st.integers(1, 200))
def test_micro_batches_hold_each_sequence_once_and_pack_into_the_token_budget(
    sequences: list[PromptResponse], budget: int
):
    batches = micro_batches(sequences, budget)

    assert sorted(index for batch in batches for index in batch) == list(range(len(sequences)))
    for batch in batches:
        assert len(batch) == 1 or tokens([sequences[index] for index in batch]) <= budget


@given(SEQUENCES, st.integers(1, 200))
def test_a_group_is_split_only_if_it_is_over_budget_by_itself(sequences: list[PromptResponse], budget: int):
    batches = micro_batches(sequences, budget)

    for prompt in {tuple(prompt) for prompt, _ in sequences}:
        group = [index for index, (own, _) in enumerate(sequences) if tuple(own) == prompt]
        parts = [batch for batch in batches if set(batch) & set(group)]
        assert len(parts) == 1 or tokens([sequences[index] for index in group]) > budget


def test_a_shared_prompt_counts_once_and_the_last_token_of_a_response_not_at_all():
    sequences = sequences_of([(10, [6, 6, 6]), (2, [4])])

    # 10 + 3 × 5 = 25 and 2 + 3 = 5
    assert micro_batches(sequences, 30) == [[0, 1, 2, 3]]
    assert micro_batches(sequences, 29) == [[0, 1, 2], [3]]
    assert micro_batches(sequences, 20) == [[0, 1], [2, 3]]  # the prompt is repeated: 10 + 10, 10 + 5 + 5


@given(SEQUENCES, st.integers(1, 6))
def test_ranks_share_all_sequences_and_no_rank_has_much_more_than_its_part(sequences: list[PromptResponse], ranks: int):
    shares = rank_shares(sequences, ranks)

    assert sorted(index for share in shares for index in share) == list(range(len(sequences)))
    longest = max(len(prompt) + len(response) for prompt, response in sequences)
    for share in shares:
        if share:
            assert tokens([sequences[i] for i in share]) <= tokens(sequences) / ranks + 2 * longest


def test_ranks_get_whole_groups_where_the_groups_are_equal():
    assert rank_shares(sequences_of([(9, [5, 5]), (9, [5, 5])]), 2) == [[0, 1], [2, 3]]


def test_a_sample_with_fewer_log_probs_than_response_tokens_is_refused():
    with pytest.raises(ValueError, match=r"group 'q7' has 2 response_ids but 1 behaviour_logprobs"):
        Sample("q7", [1], [2, 3], [-1.0], 0, 1.0)


def test_a_sample_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match="empty prompt"):
        Sample("q7", [], [2], [-1.0], 0, 1.0)
