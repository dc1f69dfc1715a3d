"""MLflow: a projection of the ledger. One MLflow run a training run, for life.

The flow projects after each commit. What could not be sent stays in the ledger and is sent with a later commit, or on
resume, once: the run's `committed` tag tells how far MLflow is. A tracker that is down never stops training, and what
it refuses never keeps the rest away.
"""

import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import mlflow
from matplotlib.figure import Figure
from mlflow.entities import Dataset, DatasetInput, Experiment, LifecycleStage, Metric, Param, RunTag
from mlflow.entities import Run as MlflowRun
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from configs.addresses import without_user
from configs.loader import flatten
from configs.schema import Recipe
from tasks.run.directory import Run, tracking_artifacts, tracking_database
from tasks.run.ledger import Receipt, committed_steps, read_commit
from tasks.tracking.away import Sparing
from tasks.tracking.provenance import git_commit
from trainer.files import digest, read_json, write_json

logger = logging.getLogger(__name__)
COMMITTED = "rl_post.committed"
WEIGHTS = "rl_post.weights"
RECIPE = "rl_post.recipe"
"""The tag with the digest of the resolved recipe. MLflow cuts long parameters: two runs may show no difference."""
ALIAS = "candidate"
DIGEST_LIMIT = 36  # Characters of a digest that MLflow stores.
NAME_LIMIT = 250  # Characters of a name.
PARAM_LIMIT = 6000  # Characters of a parameter's value that MLflow stores.


def tracking_uri(run: Run) -> str:
    """Return where a run is tracked: the recipe's URI, MLFLOW_TRACKING_URI, or a sqlite file beside the runs."""
    local = f"sqlite:///{tracking_database(run.home)}"
    return run.recipe.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or local


def prepare_client(environment: MutableMapping[str, str], timeout: float) -> None:
    """Set what MLflow's client reads: a server that is down costs seconds, not the minutes of seven retries.

    Args:
        environment: That of this process.
        timeout: Seconds until a request must be answered.
    """
    environment.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    environment.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", f"{timeout:.0f}")
    hide_password(environment)
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # It would write into the progress bar.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # Of each try; the outcome is told below.


def hide_password(environment: MutableMapping[str, str]) -> None:
    """Take user and password out of the address of an MLflow server, which MLflow prints at the end of each run.

    They go from MLFLOW_TRACKING_URI to the variables that MLflow reads them from; what is set there already stays. An
    address of a database keeps them: it is shown by nobody but this module, without them.
    """
    address = environment.get("MLFLOW_TRACKING_URI", "")
    parts = urlsplit(address)
    if parts.scheme in ("http", "https") and parts.username and parts.password:
        environment.setdefault("MLFLOW_TRACKING_USERNAME", unquote(parts.username))
        environment.setdefault("MLFLOW_TRACKING_PASSWORD", unquote(parts.password))
        environment["MLFLOW_TRACKING_URI"] = without_user(address)


def metric_name(name: str) -> str:
    """Map a name to the letters that MLflow takes: `@` becomes `_at_`, any other stranger `_`."""
    clean = re.sub(r"[^\w\-. /:]", "_", name.replace("@", "_at_"))
    return "/".join(part for part in clean.split("/") if part not in ("", ".", ".."))[:NAME_LIMIT] or "_"


def metric_points(metrics: dict[str, float], step: int, timestamp: int) -> list[Metric]:
    """Return the points of a step. Values that are not finite are left out and counted in `non_finite_metrics`."""
    points = dict(_named(metrics))
    finite = {key: value for key, value in points.items() if math.isfinite(value)}
    if len(finite) < len(points):
        finite["non_finite_metrics"] = float(len(points) - len(finite))
    return [Metric(key, value, timestamp, step) for key, value in finite.items()]


def parameters(recipe: Recipe) -> list[Param]:
    """Return a recipe's settings by their dotted keys, as MLflow takes them."""
    return [Param(key, str(value)[:PARAM_LIMIT]) for key, value in _named(flatten(recipe))]


def _named(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield values under names that MLflow takes. Of two that map to the same one, the second gets a number."""
    taken: set[str] = set()
    for name, value in values.items():
        key = unique = metric_name(name)
        count = 2
        while unique in taken:
            unique, count = f"{key[: NAME_LIMIT - 9]}_{count}", count + 1
        taken.add(unique)
        yield unique, value


class Tracker:
    """The MLflow run of a training run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._client: mlflow.MlflowClient | None = None
        self._mlflow_id = ""
        self._monitor: SystemMetricsMonitor | None = None
        self._waiting: list[Callable[[], object]] = []
        self._sparing = Sparing()

    @property
    def location(self) -> str:
        """Where to look: the tracking URI and the MLflow run id."""
        return f"{without_user(tracking_uri(self._run))} run {self._mlflow_id or '(not reached)'}"

    def project(self, now: bool = False) -> None:
        """Send what is committed and not yet in MLflow. A failure is a warning; a later call tries again.

        Args:
            now: Whether to ask also a server that just failed.
        """
        if self._try(self._project, now):
            self._waiting = [send for send in self._waiting if not self._try(partial(_send_or_leave_out, send))]

    def finish(self, status: str) -> None:
        """Send what is left and close the MLflow run as FINISHED, FAILED or KILLED."""
        self.project(now=True)
        if self._monitor:
            self._try(self._monitor.finish)
        if self._client:
            self._try(partial(self._client.set_terminated, self._mlflow_id, status), now=True)

    def log_dataset(self, dataset: Receipt) -> None:
        """Record the prepared dataset and its digest as the run's input."""

        def send() -> None:
            client = self._connect()
            source = str(dataset["path"])
            digest = dataset["digest"][:DIGEST_LIMIT]
            sources = ", ".join(source.source for source in self._run.recipe.data.everything)
            entry = Dataset(sources, digest, "local", f'{{"uri": "{source}"}}')
            client.log_inputs(self._mlflow_id, [DatasetInput(entry, [])])

        self._send(send)

    def log_samples(self, step: int, rows: Iterable[dict[str, Any]]) -> None:
        """Store a table of samples, one file a step. MLflow would add the rows to a file that it has already."""
        columns = ("group", "index", "text", "gold", "reward", "status", "finish_reason", "prompt_id")
        table = {column: [row[column] for row in rows] for column in columns}
        name = f"samples/step-{step:06d}.json"

        def send() -> None:
            client = self._connect()
            if name not in {file.path for file in client.list_artifacts(self._mlflow_id, "samples")}:
                client.log_table(self._mlflow_id, table, name)

        self._send(send)

    def log_text(self, text: str, name: str) -> None:
        """Store a text as a file."""
        self._send(lambda: self._connect().log_text(self._mlflow_id, text, name))

    def log_figure(self, figure: Figure, name: str) -> None:
        """Store a picture."""
        self._send(lambda: self._connect().log_figure(self._mlflow_id, figure, name))

    def register(self, weights: Path, name: str) -> None:
        """Store the final model and register it under `name`, once; the alias `candidate` goes to it."""

        def send() -> None:
            client = self._connect()
            client.log_artifacts(self._mlflow_id, str(weights), "model")
            with suppress(MlflowException):
                client.create_registered_model(name)
            source = f"runs:/{self._mlflow_id}/model"
            made = client.search_model_versions(f"name = {_quoted(name)} and run_id = '{self._mlflow_id}'")
            if not any(version.tags.get(WEIGHTS) == weights.name for version in made):
                tags = {WEIGHTS: weights.name}
                version = client.create_model_version(name, source, self._mlflow_id, tags=tags).version
                client.set_registered_model_alias(name, ALIAS, version)

        self._send(send)

    def _send(self, send: Callable[[], object]) -> None:
        """Send now, or with the next commit that gets through."""
        if not self._try(partial(_send_or_leave_out, send)):
            self._waiting.append(send)

    def _try(self, send: Callable[[], object], now: bool = False) -> bool:
        return self._sparing.try_to(send, _say_later, now)

    def _connect(self) -> mlflow.MlflowClient:
        """Return the client, after making the MLflow run at the first call of the training run's life."""
        if self._client is None:
            prepare_client(os.environ, self._run.recipe.timeouts.connect)
            client = mlflow.MlflowClient(tracking_uri(self._run))
            identity = self._run.tracked
            self._mlflow_id = read_json(identity)["run_id"] if identity.exists() else ""
            if not self._mlflow_id or not _goes_on(client, self._mlflow_id):
                self._mlflow_id = self._create(client)
                write_json(identity, {"run_id": self._mlflow_id})
            _log(client, self._mlflow_id, [RunTag(*tag) for tag in _tags(self._run).items()])
            self._waiting.insert(0, partial(client.log_artifact, self._mlflow_id, str(self._run.recipe_file)))
            self._monitor = SystemMetricsMonitor(
                self._mlflow_id, resume_logging=True, tracking_uri=tracking_uri(self._run)
            )
            self._monitor.start()
            self._client = client
        return self._client

    def _create(self, client: mlflow.MlflowClient) -> str:
        name = self._run.recipe.tracking.experiment
        experiment = _restored(client, client.get_experiment_by_name(name))
        # A local store would put artifacts under the current directory.
        local = str(tracking_artifacts(self._run.home)) if tracking_uri(self._run).startswith("sqlite:") else None
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(name, local)
        # A driver that was killed may have made it and not written it down.
        made = client.search_runs([experiment_id], f"tags.`rl_post.run` = {_quoted(self._run.id)}")
        tags = {"mlflow.source.git.commit": git_commit(), "rl_post.run": self._run.id}
        run = made[0] if made else client.create_run(experiment_id, tags=tags, run_name=self._run.id)
        run_id = run.info.run_id
        _log(client, run_id, parameters(self._run.recipe))
        return run_id

    def _project(self) -> None:
        client = self._connect()
        done = int(_active_run(client, self._mlflow_id).data.tags.get(COMMITTED, -1))
        monitor = self._monitor
        if monitor and monitor._process and not monitor._process.is_alive():
            monitor.start()  # It ends by itself when MLflow is away.
        for step in committed_steps(self._run):
            if step > done:
                # With the time of the commit, a point that is sent again is the same point: MLflow keeps it once.
                record = read_commit(self._run, step)
                _log(client, self._mlflow_id, metric_points(record["metrics"], step, record["time"]))
                client.set_tag(self._mlflow_id, COMMITTED, str(step))


def _log(client: mlflow.MlflowClient, run_id: str, entries: Sequence[Metric | Param | RunTag]) -> None:
    """Send points, parameters and tags by one call. What is refused is left out: found by halves, and said."""
    metrics = [entry for entry in entries if isinstance(entry, Metric)]
    params = [entry for entry in entries if isinstance(entry, Param)]
    tags = [entry for entry in entries if isinstance(entry, RunTag)]
    try:
        client.log_batch(run_id, metrics, params, tags)
    except MlflowException as error:
        if not _refused(error):
            raise
        if len(entries) == 1:
            logger.warning("MLflow refuses %s: %s. It is left out.", entries[0].key, without_user(str(error)))
            return
        half = len(entries) // 2
        _log(client, run_id, entries[:half])
        _log(client, run_id, entries[half:])


def _send_or_leave_out(send: Callable[[], object]) -> None:
    """Send. What is refused would be refused for ever, so it does not wait."""
    try:
        send()
    except MlflowException as error:
        if not _refused(error):
            raise
        logger.warning("MLflow refuses something: %s. It is left out.", without_user(str(error)))


def _refused(error: MlflowException) -> bool:
    """Tell whether MLflow answered that it does not take what it was sent, so that it never will."""
    return error.get_http_status_code() == HTTPStatus.BAD_REQUEST


def _restored(client: mlflow.MlflowClient, experiment: Experiment | None) -> Experiment | None:
    """Return an experiment, which is restored if somebody deleted it: MLflow keeps its name, and takes no runs."""
    if experiment and experiment.lifecycle_stage == LifecycleStage.DELETED:
        logger.warning("MLflow: the experiment %s had been deleted. It is restored for this run.", experiment.name)
        client.restore_experiment(experiment.experiment_id)
    return experiment


def _active_run(client: mlflow.MlflowClient, run_id: str) -> MlflowRun:
    """Return a run, which is restored if somebody deleted it, alone or with its experiment: it is not over yet."""
    run = client.get_run(run_id)
    if run.info.lifecycle_stage == LifecycleStage.DELETED:
        _restored(client, client.get_experiment(run.info.experiment_id))
        client.restore_run(run_id)
    return run


def _quoted(value: str) -> str:
    """Return a text for a filter of MLflow, which knows both quotation marks and no way to escape one."""
    return f"'{value}'" if "'" not in value else f'"{value}"'


def _goes_on(client: mlflow.MlflowClient, run_id: str) -> bool:
    """Tell whether MLflow has a run, which then is running again. Another MLflow than before gets the whole history."""
    try:
        _active_run(client, run_id)
        client.update_run(run_id, "RUNNING")
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise
        return False
    return True


def _tags(run: Run) -> dict[str, str]:
    """Return the digest of the recipe, and a tag for each setting that changed: MLflow's parameters can't change."""
    history = read_json(run.record).get("changes", [])
    steps: dict[str, list[str]] = {}
    for change in history:
        for key, (old, new) in change["changed"].items():
            steps.setdefault(f"rl_post.changed.{key}", []).append(f"{old} → {new} after step {change['after_step']}")
    changed = {key: "; ".join(values) for key, values in steps.items()}
    return {RECIPE: digest(run.recipe.model_dump(mode="json"))} | dict(_named(changed))


def _say_later(error: Exception) -> None:
    said = without_user(str(error))
    logger.warning("MLflow: %s: %s. Training goes on; it is sent later.", type(error).__name__, said)
