"""The Slurm script, run with stand-ins for Slurm's commands and for Ray."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docker/slurm.sh"
STUBS = {
    "scontrol": 'echo "localhost"; echo "other"',
    "srun": 'echo "$@" > "$LOG/srun"; while [[ "$1" == --* ]]; do shift; done; "$@"',
    "ray": 'echo "$@" > "$LOG/ray"; stat -c %a "$RAY_AUTH_TOKEN_PATH" > "$LOG/mode"; '
    'cp "$RAY_AUTH_TOKEN_PATH" "$LOG/token"; env > "$LOG/environment"; exit "${RESULT:-0}"',
}


@dataclass
class Job:
    """A folder of stand-ins, and what they were called with."""

    folder: Path

    def submit(self, *arguments: str, **environment: str) -> int:
        path = f"{self.folder}:{os.environ['PATH']}"
        slurm = {"SLURM_JOB_ID": "123456", "SLURM_JOB_NODELIST": "localhost,other", "SLURM_JOB_NUM_NODES": "2"}
        own = {
            "PATH": path,
            "LOG": str(self.folder / "log"),
            "RL_POST_HOME": str(self.folder / "home"),
            **slurm,
            **environment,
        }
        return subprocess.run([SCRIPT, *arguments], env=own, timeout=30).returncode

    def seen(self, name: str) -> str:
        return (self.folder / "log" / name).read_text().strip()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    for name in ("home", "log"):
        (tmp_path / name).mkdir()
    for name, body in STUBS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return Job(tmp_path)


def test_ray_starts_on_every_node_and_the_command_runs_when_all_have_joined(job: Job):
    assert job.submit("rl-post", "run", "r1") == 0

    assert job.seen("ray") == (
        "symmetric-run --address 127.0.0.1:23456 --min-nodes 2 -- env RAY_ADDRESS=127.0.0.1:23456 rl-post run r1"
    )


def test_without_a_command_it_is_a_worker_of_the_pool_of_the_deployment(job: Job):
    job.submit()
    assert job.seen("ray").endswith("prefect worker start --pool rl-post-nvidia --type process")

    job.submit(RL_POST_POOL="rl-post-amd")
    assert job.seen("ray").endswith("prefect worker start --pool rl-post-amd --type process")


def test_the_clusters_token_is_in_a_file_of_the_users_own_for_the_time_of_the_job(job: Job):
    job.submit()

    token = job.seen("token")
    assert len(token) == 64
    assert job.seen("mode") == "600"
    assert "RAY_AUTH_MODE=token" in job.seen("environment")
    assert token not in job.seen("environment") + job.seen("ray") + job.seen("srun")
    assert list((job.folder / "home").iterdir()) == []


def test_an_image_is_used_where_one_is_named(job: Job):
    job.submit(RL_POST_IMAGE="registry.example/rl-post:0.1.0-cuda")

    home = job.folder / "home"
    assert job.seen("srun").startswith(
        f"--container-image=registry.example/rl-post:0.1.0-cuda --container-mounts={home}:{home} ray symmetric-run"
    )


def test_the_job_fails_when_its_command_does(job: Job):
    assert job.submit(RESULT="3") == 3
    assert list((job.folder / "home").iterdir()) == []


def test_a_job_without_a_shared_directory_does_not_start(job: Job):
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "1"}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True)

    assert done.returncode != 0
    assert "RL_POST_HOME: a directory that all nodes mount" in done.stderr
