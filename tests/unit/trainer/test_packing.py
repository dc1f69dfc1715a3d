from hypothesis import given
from hypothesis import strategies as st

from trainer.batches.packing import Block, pack

IDS = st.lists(st.integers(0, 3), max_size=4)
SEQUENCES = st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=2), IDS), min_size=1, max_size=8)


def test_a_prompt_lies_once_before_its_responses_and_they_go_on_at_the_position_after_it():
    row = pack([([7, 8], [1, 2, 3]), ([9], [4, 5]), ([7, 8], [6, 5])])

    # The last token of a response is only a target: 3, 5 and 5 are not there.
    assert row.input_ids == [7, 8, 1, 2, 6, 9, 4]
    assert row.positions == [0, 1, 2, 3, 2, 0, 1]
    assert row.groups == [0, 0, 0, 0, 0, 1, 1]
    assert row.branches == [-1, -1, 0, 0, 2, -1, 1]
    assert row.blocks == [
        Block(range(0), range(2)),
        Block(range(2), range(2, 4)),
        Block(range(2), range(4, 5)),
        Block(range(0), range(5, 6)),
        Block(range(5, 6), range(6, 7)),
    ]


def test_a_response_is_predicted_from_the_last_token_of_its_prompt_on():
    row = pack([([7, 8], [1, 2, 3]), ([9], [4]), ([7, 8], [6, 5])])

    assert row.predictors == [[1, 2, 3], [5], [1, 4]]


def test_an_empty_response_is_predicted_by_nothing():
    assert pack([([7], [])]).predictors == [[]]


@given(SEQUENCES)
def test_each_sequence_can_be_read_off_the_row(sequences: list[tuple[list[int], list[int]]]):
    row = pack(sequences)

    for index, (prompt, response) in enumerate(sequences):
        group = row.groups[row.predictors[index][0]] if response else None
        seen = [
            column
            for column in range(len(row.input_ids))
            if row.groups[column] == group and row.branches[column] in (-1, index)
        ]
        if response:
            assert [row.input_ids[column] for column in seen] == (prompt + response)[:-1]
            assert [row.positions[column] for column in seen] == list(range(len(prompt + response) - 1))
            assert row.predictors[index] == seen[len(prompt) - 1 :]


@given(SEQUENCES)
def test_blocks_cover_the_row_from_left_to_right(sequences: list[tuple[list[int], list[int]]]):
    row = pack(sequences)

    assert [column for block in row.blocks for column in block.own] == list(range(len(row.input_ids)))
