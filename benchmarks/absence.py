"""Prefect's server and MLflow's, away for ten minutes each from a deployed run: `python -m benchmarks.absence`.

`rl-post up`, two runs of a deployment with the tiny policy. From the second one Prefect's server is taken away, killed
in mid-run and started again, which falls into renewals of the deployment's lease; then MLflow's in the same way. Its
weights, samples, evaluations and MLflow history are compared with those of the first run. Steps wait half a minute for
a reward model, so that some of them are made in each absence and the machine is left to others. Writes
benchmarks/absence.json and absence.md.
"""

import argparse
import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tasks.run.directory import Run
from tasks.run.events import read_events
from tasks.run.ledger import committed_steps, open_run, read_commit
from tasks.tracking.provenance import provenance
from tests.faults.results import differences, result_of
from tests.integration.installation import Installation
from trainer.files import sha256, write_json

OUT = Path(__file__).with_suffix(".json")
PAUSE = 30.0  # Seconds that a step waits for the reward model.
LONGEST = 3600.0  # Seconds that a run may take.
SERVERS = ("prefect-server", "mlflow-server")
Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each absence")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="absence-") as folder, reward_model() as model:
        installation = Installation(Path(folder))
        installation.printed = installation.call("rl-post", "up")
        try:
            settings = settings_of(model.url, minutes)
            undisturbed, ended = train(installation, settings)
            assert ended == "Completed", ended
            model.pause = PAUSE
            absences: list[Line] = []
            disturbed, ended = train(installation, settings, minutes * 60, absences)
            report = {
                "command": f"python -m benchmarks.absence --minutes {minutes:g}",
                **provenance(),
                "steps": disturbed.recipe.steps,
                "absences": [described(absence, disturbed) for absence in absences],
                "state_on_prefects_page": ended,
                "weights": {
                    "at first": weights_of(undisturbed, 0),
                    "undisturbed": weights_of(undisturbed),
                    "disturbed": weights_of(disturbed),
                },
                "differs": differences(result_of(undisturbed), result_of(disturbed)),
                "events": [event["event"] for event in read_events(disturbed.events)],
                "slots_taken_after_it": slots(installation),
            }
        finally:
            installation.call("rl-post", "down")
    write_json(OUT, report)
    OUT.with_suffix(".md").write_text(table(report))
    print(table(report))


def settings_of(reward_model: str, minutes: float) -> list[str]:
    """Return the settings of a run that lasts as long as both absences, and three minutes."""
    part = {"kind": "http", "url": reward_model, "attempts": 4}
    steps = round((2 * minutes + 3) * 60 / PAUSE)
    return [f"steps={steps}", "evaluation.every=1000", f"reward.parts={json.dumps({'model': part})}"]


def train(
    installation: Installation, settings: list[str], away: float = 0.0, absences: list[Line] | None = None
) -> tuple[Run, str]:
    """Have the deployment run, take the servers away in turn if asked to, and return the run and how it ended."""
    before = set((installation.home / "runs").glob("*"))
    flow_run = installation.begin("quickstart", recipe="quickstart", overrides=settings)
    run: Run | None = None
    deadline = time.monotonic() + LONGEST
    while run is None or len(committed_steps(run)) < 2:
        assert time.monotonic() < deadline, "no step was made"
        time.sleep(1.0)
        new = [path.parents[1] for path in (installation.home / "runs").glob("*/logs/events.jsonl")]
        run = next((open_run(installation.home, path.name) for path in new if path not in before), None)
    for server in SERVERS if away else ():
        began = time.time()
        with installation.away(server):
            time.sleep(away)
        assert absences is not None
        absences.append({"server": server, "began": began, "ended": time.time()})
        time.sleep(away / 10)
    return run, installation.end_of(flow_run, LONGEST)


def described(absence: Line, run: Run) -> Line:
    """Return a server, the seconds that it was away, and the steps that were committed meanwhile."""
    times = {step: read_commit(run, step)["time"] / 1000 for step in committed_steps(run)}
    made = [step for step, at in times.items() if absence["began"] < at < absence["ended"]]
    return {"server": absence["server"], "seconds": absence["ended"] - absence["began"], "steps": made}


def weights_of(run: Run, version: int | None = None) -> str:
    """Return the hash of weights of a run, 16 hexadecimal digits, by default of the last ones."""
    return sha256(run.weights(max(committed_steps(run)) if version is None else version) / "model.safetensors")[:16]


def slots(installation: Installation) -> int:
    """Return how many slots of deployments' limits are taken."""
    return sum(limit["active_slots"] for limit in installation.ask("v2/concurrency_limits/filter", {}))


class RewardModel(ThreadingHTTPServer):
    """Gives every response a mark that is as good as random, and always the same, after a pause.

    So that every step has something to learn: the policy is too young to be right.
    """

    pause = 0.0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}/score"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, RewardModel)
        time.sleep(self.server.pause)
        scores = [hashlib.sha256(sample["response"].encode()).digest()[0] / 255 for sample in asked["samples"]]
        answer = json.dumps({"scores": scores}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def reward_model() -> Iterator[RewardModel]:
    """Run a reward model for the length of a block."""
    with RewardModel(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def table(report: dict[str, Any]) -> str:
    rows = [
        f"| {absence['server']} | {absence['seconds']:.0f} | {', '.join(map(str, absence['steps'])) or 'none'} |"
        for absence in report["absences"]
    ]
    hashes = ", ".join(f"{name} `{weights}`" for name, weights in report["weights"].items())
    return "\n".join(
        [
            "# What the absence of a server does to a deployed run",
            "",
            f"{report['machine']}, commit {report['commit'][:12]};",
            f"recipe quickstart with {report['steps']} steps that wait {PAUSE:.0f} s for a reward model;",
            f"`{report['command']}`.",
            "",
            "| killed, and started again | after seconds | steps made meanwhile |",
            "| --- | --- | --- |",
            *rows,
            "",
            f"On Prefect's page the run ended as {report['state_on_prefects_page']}, and",
            f"{report['slots_taken_after_it'] or 'no'} slot of the deployment's limit was left taken.",
            "Weights, samples, evaluations and MLflow's history differ from those of an undisturbed run in: "
            f"{', '.join(report['differs']) or 'nothing'}.",
            f"Hashes of weights: {hashes}.",
            f"Events: {', '.join(report['events'])}.",
        ]
    ) + "\n"  # fmt: skip


if __name__ == "__main__":
    main()
