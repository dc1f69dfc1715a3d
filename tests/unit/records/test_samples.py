"""Samples survive the way through Parquet unchanged, reward or no reward."""

from pathlib import Path

import numpy as np

from tasks.records.samples import SCORED, read_samples, write_samples


def row(index: int, reward: float | None) -> dict:
    return {
        "step": 1,
        "group": 0,
        "index": index,
        "prompt_id": "q",
        "prompt_ids": [1, 2],
        "response_ids": [3, 4, 5],
        "logprobs": [float(np.float32(-0.1)), -0.5, float(np.float32(-1 / 3))],
        "weights_versions": [7, 7, 7],
        "finish_reason": "stop",
        "seed": 2**31 - 1,
        "text": "<think></think><answer>3</answer>",
        "question": "1+1=?",
        "source": "arithmetic",
        "gold": "3",
        "metadata": "{}",
        "opened": "<think>",
        "reward": reward,
        "parts": "{}",
        "status": "right" if reward else "unscorable",
    }


def test_samples_come_back_bit_for_bit_and_in_order(tmp_path: Path) -> None:
    first, second = [row(0, 1.0), row(1, 0.0)], [row(2, None)]
    write_samples(tmp_path / "0.parquet", first, SCORED)
    write_samples(tmp_path / "1.parquet", second, SCORED)

    assert read_samples([tmp_path / "0.parquet", tmp_path / "1.parquet"]) == first + second
