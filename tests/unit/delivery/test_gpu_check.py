"""The check for machines with a GPU, run small on a CPU: it finds what is right, and it can find what is wrong."""

from dataclasses import replace

import pytest

from benchmarks import gpu_check
from benchmarks.gpu_check import CHECKS, check_all, needed_flops, run, work_for

SMALL = replace(work_for("cpu"), layers=1, hidden=32, inner=64, vocabulary=2048, groups=1, samples=2)


def test_everything_is_right_on_a_cpu_and_what_needs_a_gpu_says_so():
    report = check_all(SMALL)

    assert {name: outcome["state"] for name, outcome in report["checks"].items()} == {
        "packed attention": "right",
        "chunked log-probs": "right",
        "packed forward pass": "right",
        "forward and backward": "right",
        "utilisation": "skipped",
    }
    assert report["device"] == "CPU"
    assert report["checks"]["utilisation"]["why"] == "no GPU, and no data sheet for this CPU"
    assert report["checks"]["forward and backward"]["numbers"]["response tokens/s"] > 0


@pytest.mark.parametrize(
    ("check", "broken"),
    [("packed attention", "attend"), ("chunked log-probs", "score_in_chunks"), ("packed forward pass", "Policy")],
)
def test_a_result_that_is_off_is_wrong(check: str, broken: str, monkeypatch: pytest.MonkeyPatch):
    right = getattr(gpu_check, broken)

    def off(*arguments: object, **options: object) -> object:
        result = right(*arguments, **options)
        if broken == "Policy":
            return lambda tokens: [part * 1.01 for part in result(tokens)]
        return (result[0] * 1.01, result[1])

    monkeypatch.setattr(gpu_check, broken, off)

    outcome = run(CHECKS[check], SMALL)

    assert outcome["state"] == "wrong"
    assert "Wrong: off by" in outcome["why"]


def test_what_is_not_installed_is_skipped():
    def needs_more(work: object) -> dict[str, float]:
        raise ImportError("No module named 'triton'")

    assert run(needs_more, SMALL)["state"] == "skipped"


def test_who_sees_whom_is_written_down_token_by_token():
    work = replace(SMALL, prompt=2, response=3, samples=2)
    row = gpu_check.pack([([1, 1], [2, 2]), ([1, 1], [3, 3, 3])])

    assert gpu_check.dense_mask(row).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]
    assert len(work.group(0)) == 2


def test_the_operations_of_an_update_are_those_that_can_be_counted_by_hand():
    work = replace(SMALL, hidden=2, inner=3, heads=1, key_value_heads=1, head=2, vocabulary=5, samples=1)
    work = replace(work, prompt=2, response=2)

    linear = 2 * 2 * 2 * 2 + 3 * 2 * 3  # four square projections, three of the inner layer
    attention = 4 * 2 * (1 + 2 + 3)  # three tokens in the row
    output = 2 * 2 * 2 * 5  # two response tokens
    assert needed_flops(work) == 3 * (2 * 3 * linear + attention + output)
