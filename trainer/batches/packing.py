"""How sequences lie in one row without padding. A prompt that several sequences share is there only once.

A row is made of groups: a prompt, then the responses to it one after the other. A token sees its own prompt and its own
response up to itself: attention is a tree with the prompt as its trunk. A response goes on at the position after the
prompt, so the model sees each sequence as if it were alone. The last token of a response predicts nothing that is
trained: it is a target, but not in the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

PromptResponse = tuple[list[int], list[int]]
"""(prompt_ids, response_ids) of one sequence; the prompt has at least one token."""


@dataclass(frozen=True)
class Block:
    """Neighbouring tokens of a row that see the same: all of `prompt`, and each other causally.

    Attributes:
        prompt: columns of the prompt; empty where the block itself is a prompt.
        own: columns of the block; not empty.
    """

    prompt: range
    own: range


@dataclass
class PackedRow:
    """A packed row of L tokens.

    Attributes:
        input_ids: [L] token ids.
        positions: [L] position of each token in its sequence, from 0.
        groups: [L] number of each token's group.
        branches: [L] index of the sequence that a response token belongs to; -1 for a prompt token, shared by all.
        predictors: of each sequence, the columns whose hidden states predict its response tokens.
        blocks: the row's blocks, which cover it from left to right.
    """

    input_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    predictors: list[list[int]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def by_prompt(sequences: Sequence[PromptResponse]) -> list[list[int]]:
    """Indices of the sequences of each group: those with the same prompt ids, in their order."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, (prompt, _) in enumerate(sequences):
        groups.setdefault(tuple(prompt), []).append(index)
    return list(groups.values())


def row_tokens(response: Sequence[int]) -> int:
    """Tokens that a response adds to a row: all but its last."""
    return max(0, len(response) - 1)


def pack(sequences: Sequence[PromptResponse]) -> PackedRow:
    """Lay sequences out in one row, group by group."""
    row = PackedRow(predictors=[[] for _ in sequences])
    for group, members in enumerate(by_prompt(sequences)):
        prompt_ids = sequences[members[0]][0]
        prompt = _append(row, prompt_ids, start=0, group=group, branch=-1)
        row.blocks.append(Block(prompt=range(0), own=prompt))
        for index in members:
            response = sequences[index][1]
            own = _append(row, response[:-1], start=len(prompt), group=group, branch=index)
            if own:
                row.blocks.append(Block(prompt, own))
            row.predictors[index] = [prompt[-1], *own] if response else []
    return row


def _append(row: PackedRow, ids: Sequence[int], *, start: int, group: int, branch: int) -> range:
    """Add tokens to the right end of a row, the first at position `start`, and return their columns."""
    columns = range(len(row.input_ids), len(row.input_ids) + len(ids))
    row.input_ids += ids
    row.positions += range(start, start + len(ids))
    row.groups += [group] * len(ids)
    row.branches += [branch] * len(ids)
    return columns
