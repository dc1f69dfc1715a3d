"""A process that runs the flow again and again, as told on its standard input: `python -m tests.faults.driver [NODES]`.

One line is a call, in JSON: `parameters` of a new flow run, or the id of a `flow_run` to run again as `prefect flow-run
retry` does, the file for the `answer`, and in `dies` the stage and step at which the process is killed. Ray stays up
between the calls, on one node or on so many beside that of this process, and ends with it.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from prefect.states import Scheduled
from ray.cluster_utils import Cluster

from flows.rl_post import rl_post
from tasks.orchestrator.task_runner import ray_task_runner
from tasks.processes.local_ray import prepare_local_ray
from trainer import files

NODE_CPUS = 3  # Enough for all actors and tasks: one node is the spare of the other.


def main() -> None:
    """Serve calls until the standard input ends."""
    if len(sys.argv) > 1:
        prepare_local_ray(os.environ)
        cluster = Cluster()
        cluster.add_node(num_cpus=0)
        for _ in range(int(sys.argv[1])):
            cluster.add_node(num_cpus=NODE_CPUS)
        os.environ["RAY_ADDRESS"] = str(cluster.address)
    with ray_task_runner():
        print("ready", flush=True)
        for line in sys.stdin:
            call = json.loads(line)
            try:
                with dying(*call.get("dies", ("", 0))):
                    answer = {
                        "outcome": again(UUID(call["flow_run"]))
                        if "flow_run" in call
                        else rl_post(**call["parameters"])
                    }
            except Exception as error:  # The one who asked decides what it means.
                answer = {"error": f"{type(error).__name__}: {error}"}
            path = Path(call["answer"])
            path.with_suffix(".part").write_text(json.dumps(answer))  # not synced: the disk may be in trouble
            path.with_suffix(".part").rename(path)


def again(flow_run_id: UUID) -> Any:
    """Run a flow run again under its own id."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run_id, Scheduled(message="retried"), force=True)
        flow_run = client.read_flow_run(flow_run_id)
    return run_flow(rl_post, flow_run=flow_run, parameters=flow_run.parameters)


@contextmanager
def dying(stage: str, step: int) -> Iterator[None]:
    """Die in the commit of a step: before it has its name (`commit`), or right after (`projection`)."""
    sync, folder = files.sync, f"{step:06d}"

    def sync_or_die(path: Path) -> None:
        unnamed = path.parent.name == folder and path.name.startswith(".commit.json.")
        named = path.name == folder and (path / "commit.json").exists()
        if (stage == "commit" and unnamed) or (stage == "projection" and named):
            os.kill(os.getpid(), signal.SIGKILL)
        sync(path)

    with patch.object(files, "sync", sync_or_die):
        yield


if __name__ == "__main__":
    main()
