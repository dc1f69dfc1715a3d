"""The whole flow by the front door, on real Prefect, Ray, SGLang and MLflow, undisturbed and interrupted."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import mlflow
import psutil
import pytest
import yaml

from tasks.cluster.devices import cpu_environment
from tasks.records.samples import SampleRow, read_samples
from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.run.ledger import committed_steps, open_run, read_commit
from tests.integration.processes import Marked
from trainer.files import read_json, sha256

ROOT = Path(__file__).parents[2]
RL_POST = Path(sys.executable).parent / "rl-post"
STEPS = 3
RECIPE = ["quickstart", f"steps={STEPS}", "evaluation.every=2", "tracking.register_as=quickstart"]
PATIENCE = 500  # Seconds that one run may take before the test gives up on it: a run takes 100 on a quiet machine.


@dataclass
class Secret:
    """An engine's key, the permissions of the file that it was passed by, and the command lines while it served."""

    key: str
    mode: int
    commands: list[list[str]]


class Home:
    """A directory of runs, one for temporary files, and the processes that were started for them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = Path(tempfile.mkdtemp())  # Its name is short: Ray puts sockets there.
        self.secret: Secret | None = None
        self._marked = Marked(path)
        self.processes = self._marked.processes

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        # A file and not a pipe: a process that is left over would hold a pipe open and hang the test.
        with self.output.open("ab") as output:
            return subprocess.Popen(
                [RL_POST, "run", *arguments],
                cwd=self.path,
                env=self._marked.environment | {"TMPDIR": str(self.temporary)},
                stdout=output,
                stderr=output,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where a shell runs us with &
            )

    @property
    def output(self) -> Path:
        return self.path / "output.txt"

    def run(self) -> Run:
        """Return the one run of this home."""
        (root,) = (self.path / "runs").iterdir()
        return open_run(self.path, root.name)


@pytest.fixture(scope="module")
def new_home(tmp_path_factory: pytest.TempPathFactory):
    homes: list[Home] = []

    def make() -> Home:
        homes.append(Home(tmp_path_factory.mktemp("home")))
        return homes[-1]

    yield make
    for home in homes:
        for process in home.processes():
            process.kill()
        shutil.rmtree(home.temporary, ignore_errors=True)


@pytest.fixture(scope="module")
def undisturbed(new_home) -> Home:
    home = new_home()
    process = home.start(*RECIPE)
    home.secret = wait_for_secret(home, process)
    wait_for_file(home, "runs/*/steps/000001/commit.json", process)
    home.secret.commands = [found.info["cmdline"] or [] for found in psutil.process_iter(["cmdline"])]
    assert process.wait(PATIENCE) == 0, home.output.read_text()
    return home


def wait_for_file(home: Home, pattern: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not list(home.path.glob(pattern)):
        assert process.poll() is None, f"ended before {pattern}: {home.output.read_text()}"
        assert time.monotonic() < deadline, f"no {pattern} within {PATIENCE} s"
        time.sleep(0.05)


def wait_for_secret(home: Home, process: subprocess.Popen[bytes]) -> Secret:
    """Return the key of an engine that is starting, out of the file that only lasts until then."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for file in home.temporary.glob("*.yaml"):
            with suppress(FileNotFoundError, TypeError, KeyError):  # Gone again, or not written yet.
                mode = stat.S_IMODE(file.stat().st_mode)
                return Secret(yaml.safe_load(file.read_text())["api-key"], mode, [])
        assert process.poll() is None, f"ended before an engine started: {home.output.read_text()}"
        assert time.monotonic() < deadline, f"no engine was started within {PATIENCE} s"
        time.sleep(0.05)


def files_with(home: Home, text: str) -> list[Path]:
    """Return the files with a text, of all that a home's processes have left."""
    files = [path for folder in (home.path, home.temporary) for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if text.encode() in path.read_bytes()]


def nothing_is_left(home: Home) -> None:
    deadline = time.monotonic() + 90  # Ray's agents look for their raylet now and then; later on a busy machine.
    while (left := home.processes()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [process.cmdline() for process in left] == []


def mlflow_run(home: Home):
    client = mlflow.MlflowClient(f"sqlite:///{home.path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("rl-post")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def test_every_step_is_committed_and_every_sample_comes_from_the_weights_before_it(undisturbed: Home) -> None:
    run = undisturbed.run()

    assert committed_steps(run) == [0, 1, 2, 3]
    for step in range(1, STEPS + 1):
        rows = read_samples(sorted(run.step_file(step, "").glob("scored-*.parquet")))
        assert len(rows) == 16
        assert {version for row in rows for version in row["weights_versions"]} == {step - 1}
        assert len({row["seed"] for row in rows}) == 16
        assert all(len(row["logprobs"]) == len(row["response_ids"]) for row in rows)


def test_the_commit_names_the_hash_of_every_file(undisturbed: Home) -> None:
    run = undisturbed.run()

    for step in committed_steps(run):
        files = read_commit(run, step)["files"]
        assert files
        assert all(sha256(run.step_file(step, name)) == expected for name, expected in files.items())


def test_the_evaluation_is_of_the_weights_that_it_names(undisturbed: Home) -> None:
    run = undisturbed.run()

    for version in (0, 2, 3):
        assert json.loads(run.step_file(version, "eval.json").read_text())["version"] == version
        rows = read_samples([run.step_file(version, "eval-greedy.parquet")])
        assert len(rows) == 32
        assert {made_by for row in rows for made_by in row["weights_versions"]} == {version}


def test_training_and_evaluation_questions_do_not_overlap(undisturbed: Home) -> None:
    run = undisturbed.run()
    trained = {
        row["prompt_id"]
        for step in range(1, STEPS + 1)
        for row in read_samples(sorted(run.step_file(step, "").glob("scored-*.parquet")))
    }
    evaluated = {row["prompt_id"] for row in read_samples([run.step_file(0, "eval-greedy.parquet")])}

    assert trained and evaluated
    assert not trained & evaluated


def test_mlflow_holds_one_finished_run_with_recipe_curves_samples_and_model(undisturbed: Home) -> None:
    client, found = mlflow_run(undisturbed)
    run_id = found.info.run_id

    assert found.info.status == "FINISHED"
    assert found.data.params["rollout.prompts_per_step"] == "4"
    assert [p.step for p in client.get_metric_history(run_id, "reward/mean")] == [1, 2, 3]
    assert [p.step for p in client.get_metric_history(run_id, "eval/heldout/greedy_accuracy")] == [0, 2, 3]
    expected = {
        "reward/mean", "reward/std", "reward/accuracy",
        "rollout/response_length_mean", "rollout/response_length_max", "rollout/truncated_share",
        "rollout/weights_lag_mean",
        "policy/zero_variance_share", "policy/loss", "policy/grad_norm", "policy/entropy", "policy/kl",
        "policy/clip_share", "policy/logprob_gap_mean",
        "perf/rollout_tokens_per_second", "perf/update_tokens_per_second", "perf/learner_peak_memory_bytes",
        "time/rollout", "time/reward", "time/update", "time/publish", "time/evaluate",
    }  # fmt: skip
    assert expected <= found.data.metrics.keys()
    assert any(name.startswith("system/") for name in found.data.metrics)
    assert {"recipe.yaml", "data_report.md", "samples", "model", "curves.png"} <= {
        file.path for file in client.list_artifacts(run_id)
    }
    assert client.get_model_version_by_alias("quickstart", "candidate").run_id == run_id


def test_an_engines_key_is_in_no_file_and_no_command_line(undisturbed: Home) -> None:
    secret = undisturbed.secret
    assert secret is not None

    assert len(secret.key) == 32
    assert secret.mode == 0o600
    assert any("sglang.launch_server" in command for command in secret.commands)
    assert not [command for command in secret.commands if secret.key in " ".join(command)]
    assert files_with(undisturbed, secret.key) == []
    # Looked at were the run directory, the logs of all processes, MLflow's store and Prefect's database.
    looked_at = {path.name for path in files_with(undisturbed, undisturbed.run().recipe.name)}
    assert {"recipe.yaml", "mlflow.db", "prefect.db", "output.txt"} <= looked_at
    assert list(undisturbed.temporary.glob("ray/session_*/logs/*"))


def test_nothing_is_left_after_a_run(undisturbed: Home) -> None:
    nothing_is_left(undisturbed)


Bits = tuple[list[list[SampleRow]], str]
"""The samples of each step, and the hash of the last weights."""


def bits_of(run: Run) -> Bits:
    folders = [run.step_file(step, "") for step in range(1, STEPS + 1)]
    samples = [read_samples(sorted(folder.glob("scored-*.parquet"))) for folder in folders]
    return samples, sha256(run.weights(STEPS) / "model.safetensors")


def bits_of_a_plain_loop(home: Home, out: Path) -> Bits:
    """Train a home's run again by `plain_loop.py`, with the environment of a learner's rank."""
    run = home.run()
    environment = os.environ | cpu_environment(run.recipe.learner.threads) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.integration.plain_loop", home.path, run.id, out]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    samples = [read_samples([out / f"scored-{step}.parquet"]) for step in range(1, STEPS + 1)]
    return samples, sha256(out / f"weights-{STEPS}" / "model.safetensors")


def test_the_flow_trains_as_a_plain_loop_does(undisturbed: Home, tmp_path: Path) -> None:
    assert bits_of(undisturbed.run()) == bits_of_a_plain_loop(undisturbed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("via", ["disk", "broadcast"])
def test_rollouts_beside_updates_train_as_a_plain_loop_with_old_weights_does(
    new_home, tmp_path: Path, via: str
) -> None:
    home = new_home()
    beside = ["pipeline.max_staleness=1", "evaluation.every=3"]
    process = home.start(*RECIPE, *beside, f"weight_sync.via={via}")
    assert process.wait(PATIENCE) == 0, home.output.read_text()

    assert bits_of(home.run()) == bits_of_a_plain_loop(home, tmp_path)
    assert home.run().weights(2).exists() == (via == "disk")
    happened = {event["event"] for event in read_events(home.run().events)}
    assert happened.isdisjoint({"weights not sent", "learner rebuilt", "engine lost"})


def test_the_same_recipe_killed_and_resumed_gives_the_same_bits(undisturbed: Home, new_home) -> None:
    home = new_home()
    process = home.start(*RECIPE)
    wait_for_file(home, "runs/*/steps/000001/commit.json", process)
    process.kill()
    process.wait()
    nothing_is_left(home)

    resumed = home.start("--resume", home.run().id)
    assert resumed.wait(PATIENCE) == 0, home.output.read_text()

    assert bits_of(home.run()) == bits_of(undisturbed.run())
    client, found = mlflow_run(home)
    assert [p.step for p in client.get_metric_history(found.info.run_id, "reward/mean")] == [1, 2, 3]


def copied(copies: Path) -> tuple[Path, int] | None:
    """Return where the copy of the one run is, and which step it is of."""
    return next(((index.parent, read_json(index)["step"]) for index in copies.glob("*/archive.json")), None)


def test_a_run_whose_machine_is_lost_goes_on_elsewhere_from_its_copy_to_the_same_bits(
    undisturbed: Home, new_home, tmp_path: Path
) -> None:
    lost, elsewhere = new_home(), new_home()
    process = lost.start(*RECIPE, f"archive=file://{tmp_path}")
    while (copy := copied(tmp_path)) is None or copy[1] < 1:
        assert process.poll() is None, lost.output.read_text()
        time.sleep(0.05)
    while at_work := lost.processes():
        for one in at_work:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.poll()
        time.sleep(0.05)
    shutil.rmtree(lost.path)

    resumed = elsewhere.start("--resume", f"file://{copy[0]}")
    assert resumed.wait(PATIENCE) == 0, elsewhere.output.read_text()

    assert bits_of(elsewhere.run()) == bits_of(undisturbed.run())
    client, found = mlflow_run(elsewhere)
    assert [p.step for p in client.get_metric_history(found.info.run_id, "reward/mean")] == [1, 2, 3]
    assert copied(tmp_path) == (copy[0], STEPS)
    assert sha256(copy[0] / "weights" / f"{STEPS:06d}" / "model.safetensors") == bits_of(undisturbed.run())[1]


@pytest.mark.slow
def test_weights_from_memory_and_an_engine_that_is_lost_with_them_give_the_same_bits(
    undisturbed: Home, new_home
) -> None:
    home = new_home()
    process = home.start(*RECIPE, "weight_sync.via=broadcast")
    wait_for_file(home, "runs/*/steps/000001/commit.json", process)  # Version 1 is in the engine, and not on disk.
    assert not home.run().weights(1).exists()

    for scheduler in (found for found in home.processes() if "sglang::scheduler" in found.cmdline()):
        scheduler.kill()

    assert process.wait(PATIENCE) == 0, home.output.read_text()
    assert bits_of(home.run()) == bits_of(undisturbed.run())
    assert "engine lost" in [event["event"] for event in read_events(home.run().events)]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_stop_leaves_nothing_and_says_so_in_mlflow(new_home, stop: signal.Signals) -> None:
    home = new_home()
    process = home.start(*RECIPE)
    wait_for_file(home, "runs/*/logs/engine-0.log", process)

    process.send_signal(stop)

    assert process.wait(60) != 0, home.output.read_text()
    nothing_is_left(home)
    assert mlflow_run(home)[1].info.status in ("KILLED", "FAILED")
