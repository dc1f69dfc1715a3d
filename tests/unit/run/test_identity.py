"""What makes a run another one, and what does not."""

from pathlib import Path

import pytest

from configs.loader import load_recipe
from tasks.run.directory import Run
from tasks.run.identity import identity
from trainer.files import write_json


def of(home: Path, *overrides: str, dataset: str = "d1") -> str:
    run = Run(home / "runs" / "r", load_recipe("r1", overrides))
    write_json(run.step_file(0, "dataset.json"), {"digest": dataset})
    return identity(run)


@pytest.mark.parametrize("override", ["seed=7", "optimizer.learning_rate=1e-6", "rollout.temperature=0.7"])
def test_a_setting_that_decides_what_a_step_computes_makes_another_run(tmp_path: Path, override: str) -> None:
    assert of(tmp_path, override) != of(tmp_path)


def test_other_data_make_another_run(tmp_path: Path) -> None:
    assert of(tmp_path, dataset="d2") != of(tmp_path)


@pytest.mark.parametrize("override", ["steps=7", "engine.count=2", "learner.ranks=2", "archive=s3://bucket/copies"])
def test_a_setting_that_may_change_leaves_the_run_what_it_is(tmp_path: Path, override: str) -> None:
    assert of(tmp_path, override) == of(tmp_path)


def test_a_setting_that_is_named_with_its_default_counts_for_nothing(tmp_path: Path) -> None:
    assert of(tmp_path, "pipeline.max_staleness=0") == of(tmp_path)
