"""A process that runs the flow again and again, as told on its standard input: `python -m tests.faults.driver`.

One line is a call, in JSON: `parameters` of a new flow run, or the id of a `flow_run` to run again as `prefect flow-run
retry` does, and the file for the `answer`. Ray stays up between the calls, and
ends with this process.
"""

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from flows.rl_post import rl_post
from tasks.runtime.cluster import ray_task_runner
from tasks.runtime.files import write_json


def main() -> None:
    """Serve calls until the standard input ends."""
    with ray_task_runner():
        print("ready", flush=True)
        for line in sys.stdin:
            call = json.loads(line)
            try:
                answer = {
                    "outcome": again(UUID(call["flow_run"])) if "flow_run" in call else rl_post(**call["parameters"])
                }
            except Exception as error:  # The one who asked decides what it means.
                answer = {"error": f"{type(error).__name__}: {error}"}
            write_json(Path(call["answer"]), answer)


def again(flow_run_id: UUID) -> Any:
    """Run a flow run again under its own id."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run_id, Scheduled(message="retried"), force=True)
        flow_run = client.read_flow_run(flow_run_id)
    return run_flow(rl_post, flow_run=flow_run, parameters=flow_run.parameters)


if __name__ == "__main__":
    main()
