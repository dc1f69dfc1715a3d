"""A real model on a real task: one step of `configs/smollm2.yaml`, by the front door."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.run.ledger import committed_steps, open_run, read_commit

RL_POST = Path(sys.executable).parent / "rl-post"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_one_step_of_smollm2_is_scored_trained_on_and_published(tmp_path: Path) -> None:
    small = ["steps=1", "data.train_size=16", "data.eval_size=8", "rollout.prompts_per_step=4"]
    environment = {**os.environ, "RL_POST_HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path / "prefect")}

    done = subprocess.run(
        [RL_POST, "run", "smollm2", *small],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    (root,) = (tmp_path / "runs").iterdir()
    run = open_run(tmp_path, root.name)
    assert committed_steps(run) == [0, 1]
    metrics = read_commit(run, 1)["metrics"]
    assert metrics["rollout/samples"] == 32
    assert math.isfinite(metrics["policy/loss"])
    # The engine's log-probs are those of the learner's model: a wrong template, shift or temperature shows here.
    assert metrics["policy/logprob_gap_mean"] < 1e-4
