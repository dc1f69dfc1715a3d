"""The run directory: where everything of a training run lies. Every name of a file or folder is defined here.

    .rl-post/                               home of all runs
      runs/r1-20261130-031500-a1b2/         one run
        run.json  recipe.yaml  lock.json  mlflow.json
        steps/000012/                       what a step made
          rollout-00.parquet  scored-00.parquet  carried-00.parquet     samples of a shard; receipts end in .json
          begun-rollout-00.parquet          what a rollout that failed had made; gone when it is done
          batch.json  update.json  checkpoint.json  pass_rates.json
          eval.json  eval-greedy.parquet  eval-sampled.parquet
          commit.json                       the hashes of all of it
        steps/000000/                       also dataset.json and policy.json
        weights/000012/   checkpoints/000010/   logs/
      cache/  services/  mlflow.db  mlartifacts/                        what the runs share

Step 0 is the policy before the first update. Step k samples with weights version k-1, and its update makes version k.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Recipe

RECORD, RECIPE, LOCK, TRACKED = "run.json", "recipe.yaml", "lock.json", "mlflow.json"
LOGS, EVENTS = "logs", "events.jsonl"
CHANGING = (RECORD, RECIPE, TRACKED, f"{LOGS}/{EVENTS}")
"""Files of a run that grow or are replaced while it goes on."""
STEPS, WEIGHTS, CHECKPOINTS = NUMBERED = ("steps", "weights", "checkpoints")
"""Folders with a folder for each step or version."""
KNOWN = {RECORD, RECIPE, LOCK, TRACKED, LOGS, *NUMBERED}
"""The names in a run directory. A killed writer leaves hidden names; they are never read."""
SCORED_FILES = "scored-*.parquet"
SAMPLE_FILES = ("rollout-*.parquet", SCORED_FILES)


@dataclass(frozen=True)
class Run:
    """One training run: its directory and its recipe. Small enough to be an argument of every task."""

    root: Path
    recipe: Recipe

    @property
    def id(self) -> str:
        """The run's name, e.g. `r1-20261130-031500-a1b2`."""
        return self.root.name

    @property
    def home(self) -> Path:
        """The directory that holds the runs and what they share."""
        return self.root.parent.parent

    @property
    def record(self) -> Path:
        """What the run is: its format, when and by which flow run it was begun, and what was changed since."""
        return self.root / RECORD

    @property
    def recipe_file(self) -> Path:
        """The run's recipe, resolved."""
        return self.root / RECIPE

    @property
    def lock(self) -> Path:
        """Who runs it."""
        return self.root / LOCK

    @property
    def tracked(self) -> Path:
        """The id of its MLflow run."""
        return self.root / TRACKED

    @property
    def logs(self) -> Path:
        """The folder of the engines' logs."""
        return self.root / LOGS

    @property
    def events(self) -> Path:
        """The file of what happened to the run."""
        return events_file(self.logs)

    @property
    def dataset(self) -> Path:
        """Receipt of the dataset that the run began with."""
        return self.step_file(0, "dataset.json")

    @property
    def policy(self) -> Path:
        """Receipt of the cold start."""
        return self.step_file(0, "policy.json")

    def step_file(self, step: int, name: str) -> Path:
        """Return the path of a file of a step."""
        return self.root / STEPS / f"{step:06d}" / name

    def commit(self, step: int) -> Path:
        """Return the file that makes a step count."""
        return self.step_file(step, "commit.json")

    def rollout(self, step: int, shard: int) -> Path:
        """Return the file of the samples of a shard."""
        return self.step_file(step, f"rollout-{shard:02d}.parquet")

    def scored(self, step: int, shard: int) -> Path:
        """Return the file of the scored samples of a shard."""
        return self.step_file(step, f"scored-{shard:02d}.parquet")

    def carried(self, step: int, shard: int) -> Path:
        """Return the file of the samples that a shard leaves to the next step."""
        return self.step_file(step, f"carried-{shard:02d}.parquet")

    def batch(self, step: int) -> Path:
        """Return the write-ahead log of a step's update: which samples it takes."""
        return self.step_file(step, "batch.json")

    def update(self, step: int) -> Path:
        """Return the receipt of a step's update."""
        return self.step_file(step, "update.json")

    def checkpointed(self, step: int) -> Path:
        """Return the receipt of the checkpoint after a step."""
        return self.step_file(step, "checkpoint.json")

    def pass_rates(self, step: int) -> Path:
        """Return the file of the pass rates as a step's samples left them."""
        return self.step_file(step, "pass_rates.json")

    def evaluation(self, version: int) -> Path:
        """Return the receipt of the evaluation of a weights version."""
        return self.step_file(version, "eval.json")

    def evaluated(self, version: int, name: str) -> Path:
        """Return the file of the answers of an evaluation, `greedy` or `sampled`."""
        return self.step_file(version, f"eval-{name}.parquet")

    def weights(self, version: int) -> Path:
        """Return the folder of a weights version in Hugging Face format."""
        return self.root / WEIGHTS / f"{version:06d}"

    def checkpoint(self, version: int) -> Path:
        """Return the folder of the learner's full state at a weights version."""
        return self.root / CHECKPOINTS / f"{version:06d}"

    def steps_begun(self) -> list[int]:
        """Return the steps that have a folder, in order."""
        return numbered(self.root / STEPS)

    def weights_versions(self) -> list[int]:
        """Return the weights versions on the disk, oldest first."""
        return numbered(self.root / WEIGHTS)

    def checkpoints(self) -> list[int]:
        """Return the versions that have a full checkpoint, oldest first."""
        return numbered(self.root / CHECKPOINTS)

    def portable(self, path: str) -> str:
        """Return the form of a path to store: relative to `home` if it lies there, because `home` may be moved."""
        return str(Path(path).relative_to(self.home)) if Path(path).is_relative_to(self.home) else path


def home() -> Path:
    """Return the directory of all runs and of what they share: RL_POST_HOME, or `.rl-post` in the current one."""
    return Path(os.environ.get("RL_POST_HOME", ".rl-post")).absolute()


def runs_in(home: Path) -> Path:
    """Return the folder of all runs."""
    return home / "runs"


def models_in(home: Path) -> Path:
    """Return the folder of the models that were built here."""
    return home / "cache" / "models"


def datasets_in(home: Path) -> Path:
    """Return the folder of the prepared datasets."""
    return home / "cache" / "datasets"


def cold_starts_in(home: Path) -> Path:
    """Return the folder of the policies that cold starts left."""
    return home / "cache" / "cold-start"


def services_in(home: Path) -> Path:
    """Return the folder of the services' logs and of the record of what was started."""
    return home / "services"


def tracking_database(home: Path) -> Path:
    """Return MLflow's database where no server is configured."""
    return home / "mlflow.db"


def tracking_artifacts(home: Path) -> Path:
    """Return the folder of MLflow's files where no server is configured."""
    return home / "mlartifacts"


def events_file(logs: Path) -> Path:
    """Return the file of a run's events, which lies beside the logs."""
    return logs / EVENTS


def receipt_of(samples: Path) -> Path:
    """Return the receipt that goes with a file of samples."""
    return samples.with_suffix(".json")


def begun_of(samples: Path) -> Path:
    """Return the file of what there was of some samples when making them failed. The next try goes on from there."""
    return samples.with_name(f"begun-{samples.name}")


def numbered(folder: Path) -> list[int]:
    """Return the numbers of the steps or versions that a folder holds, in order. Other names are ignored."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal() and len(path.name) >= 6)
