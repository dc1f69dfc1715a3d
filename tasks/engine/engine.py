"""One SGLang server and its life: start, weights version, restart, end. A plain class; runs use it as a Ray actor."""

import logging
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from configs.schema import Recipe
from tasks.cluster.devices import Accelerator, visible_devices
from tasks.cluster.limits import limits
from tasks.cluster.placement import actor_name
from tasks.engine.watch import end_if_hung
from tasks.processes import guard
from tasks.processes.network import own_address, reserved_port, url_of
from tasks.processes.own_devices import show_own_devices
from tasks.run.directory import events_file
from tasks.run.events import record
from tasks.server.client import (
    MEMORY,
    TORN,
    WEIGHTS,
    Endpoint,
    EngineClient,
    EngineRefused,
    EngineUnavailable,
    WeightsNotUpdated,
    WeightsUnchanged,
)
from tasks.server.launch import launch_spec
from tasks.weights.from_disk import Loaded, load
from trainer.model.shape import parameters_of

logger = logging.getLogger(__name__)

PORT_ATTEMPTS = 3
POLL = 0.25  # Seconds between looks at a starting server.
LOG_TAIL = 30  # Lines of the server's log in an error.


class EngineFailed(RuntimeError):
    """A server could not be started."""


class _PortTaken(EngineFailed):
    pass


class Engine:
    """Owns one SGLang server and its processes. They end when this object's process ends, for whatever reason."""

    def __init__(self, index: int, recipe: Recipe, log_dir: Path, accelerator: Accelerator) -> None:
        """Prepare an engine; `start` starts its server.

        Args:
            index: Position among the run's engines, in names and the seed.
            recipe: The recipe.
            log_dir: Folder for the server's log, `engine-<index>.log`, and the run's `events.jsonl`.
            accelerator: Hardware that the server runs on.
        """
        self._name = actor_name("engine", index)
        self._recipe, self._settings = recipe, recipe.engine
        self._limits = limits(recipe, None)
        self._accelerator: Accelerator = accelerator
        show_own_devices(accelerator)
        self._seed = recipe.seed + index
        self._log_path = log_dir / f"{self._name}.log"
        self._events = events_file(log_dir)
        self._api_key = secrets.token_hex(16)
        self._guard: subprocess.Popen[bytes] | None = None
        self._url: str | None = None
        self._ended = threading.Event()
        self._released: list[str] = []  # memory that the server gave up, by SGLang's names
        self._loaded: Loaded | None = None

    def start(self, weights_dir: Path, version: int) -> str:
        """Bring the server up with the weights in a folder. Does nothing if it already serves that version.

        Args:
            weights_dir: Model folder in Hugging Face format, complete.
            version: The weights version that the folder holds.

        Returns:
            The server's URL.

        Raises:
            EngineFailed: the server ended or did not answer in time; shows the end of its log and where the log is.
            WeightsNotUpdated: a running server could not load the weights; it keeps the ones it has.
        """
        if not self._serves(weights_dir, version):
            self.stop()
            began = time.monotonic()
            self._launch(weights_dir, version)
            seconds = round(time.monotonic() - began, 1)
            record(self._events, "engine started", engine=self._name, version=version, seconds=seconds)
        return self.url()

    def publish(self, weights_dir: Path, version: int) -> Endpoint:
        """Like `start`, for new weights.

        Returns:
            Where the server is reached; it reported the version.
        """
        self.start(weights_dir, version)
        return self._endpoint()

    def reports(self) -> tuple[Endpoint, int] | None:
        """Return where the server is reached and the weights version that it reports; None if it does not answer."""
        if self._url is None or self._guard is None or self._guard.poll() is not None:
            return None
        with EngineClient(self._endpoint(), attempts=1) as client:
            try:
                return self._endpoint(), client.weights_version()
            except EngineUnavailable:
                return None

    def url(self) -> str:
        """Return the server's URL.

        Raises:
            EngineFailed: if the server was not started.
        """
        if self._url is None:
            raise EngineFailed("the engine was not started, or was stopped; call start(weights_dir, version)")
        return self._url

    def devices(self) -> list[str]:
        """Return the GPUs of this engine, by index or id on its node."""
        return visible_devices(os.environ, self._accelerator) or []

    def release(self) -> None:
        """Have the server give up its GPU memory, weights and KV cache, until weights are published again.

        Does nothing if the memory is already released, if there is no server, or on a CPU, where SGLang has no memory
        saver. If the release fails, the server is ended, which frees the memory too.
        """
        if self._guard is None or self._url is None or self._accelerator == "cpu":
            return
        if held := [tag for tag in MEMORY if tag not in self._released]:
            self._ended.set()
            try:
                with EngineClient(self._endpoint()) as client:
                    client.release_memory(held)
            except (EngineUnavailable, EngineRefused) as error:
                self._lost(f"it did not release its memory: {error}")
                self.stop()
            else:
                self._released = list(MEMORY)

    def await_weights(self) -> Endpoint | None:
        """Prepare a running server to receive weights from memory. `publish` then lets it continue with them.

        A server that shares its GPUs then holds the memory of its weights and nothing else.

        Returns:
            Where it is reached; None if it can't receive weights. `publish` then replaces it.
        """
        report = self.reports()
        if report is None or (report[1] == TORN and not self._released):
            return None
        if self._settings.colocated and not self._released:
            self.release()
        if WEIGHTS in self._released:
            try:
                with EngineClient(self._endpoint()) as client:
                    self._resume(client, [WEIGHTS])
            except (EngineUnavailable, EngineRefused) as error:
                self._lost(f"it did not take the memory of its weights again: {error}")
                self.stop()
        return self._endpoint() if self._url else None

    def stop(self) -> None:
        """End the server and all its processes. Does nothing where there is none."""
        self._ended.set()
        self._released = []
        if self._guard is None:
            return
        assert self._guard.stdin
        self._guard.stdin.close()  # the guard then ends the server
        self._guard.wait(timeout=self._recipe.timeouts.stop)
        self._guard, self._url = None, None

    def _serves(self, weights_dir: Path, version: int) -> bool:
        """Have a running server load the weights unless it has them. False if no usable server answers."""
        if self._url is None or self._guard is None:
            return False
        if (code := self._guard.poll()) is not None:
            return self._lost(f"the server ended with exit code {code}")
        with EngineClient(self._endpoint()) as client:
            try:
                if self._released:
                    self._wake(client, weights_dir, version)
                elif (reported := client.weights_version()) == TORN:
                    return self._lost("a change of its weights in memory was cut off")
                elif reported != version:
                    self._loaded = load(client, weights_dir, version, self._loaded)
            except (EngineUnavailable, WeightsUnchanged) as error:
                return self._lost(str(error))
        return True

    def _wake(self, client: EngineClient, weights_dir: Path, version: int) -> None:
        """Wake a server that released its memory. It lost its weights: load them, unless it was sent others.

        The KV cache comes back after the weights: while they load, there may be no room for both.
        """
        try:
            if WEIGHTS in self._released:
                self._resume(client, [WEIGHTS])
                self._loaded = load(client, weights_dir, version, self._loaded)
            elif (reported := client.weights_version()) != version:
                raise WeightsNotUpdated(f"it reports version {reported}")
            self._resume(client, self._released)
            client.continue_generation()
        except (WeightsNotUpdated, EngineRefused) as error:
            raise EngineUnavailable(f"it has no weights since it released its memory: {error}") from error
        self._start_watch()

    def _resume(self, client: EngineClient, tags: Sequence[str]) -> None:
        client.resume_memory(tags)
        self._released = [tag for tag in self._released if tag not in tags]

    def _lost(self, why: str) -> bool:
        logger.warning("%s is lost and will be replaced: %s", self._name, why)
        record(self._events, "engine lost", engine=self._name, why=why)
        return False

    def _launch(self, weights_dir: Path, version: int) -> None:
        self._limits = limits(self._recipe, parameters_of(str(weights_dir)))
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                return self._launch_once(weights_dir, version)
            except _PortTaken:
                if attempt == PORT_ATTEMPTS:
                    raise
                logger.warning("another process took the engine's port; trying the next")

    def _launch_once(self, weights_dir: Path, version: int) -> None:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        host = own_address()
        with (
            reserved_port(host) as port,
            tempfile.NamedTemporaryFile("w", suffix=".yaml") as secrets_file,
            self._log_path.open("ab") as log,
        ):
            yaml.safe_dump({"api-key": self._api_key}, secrets_file)
            secrets_file.flush()
            spec = launch_spec(
                self._recipe, weights_dir, version, host, port, self._accelerator, self._seed, Path(secrets_file.name)
            )
            self._guard = guard.start(spec.command, spec.env, log, self._recipe.timeouts.grace)
            try:
                self._wait_until_ready(url_of(host, port), version, log.tell())
                with EngineClient(self._endpoint()) as client:
                    self._loaded = Loaded(weights_dir, client.weights_checksum())
            except BaseException:
                self.stop()
                raise
            self._start_watch()

    def _endpoint(self) -> Endpoint:
        return Endpoint(self.url(), self._api_key, self._limits.request, self._recipe.timeouts.connect)

    def _start_watch(self) -> None:
        self._ended = threading.Event()
        watched = self._endpoint(), self._guard, self._ended
        threading.Thread(target=self._watch, args=watched, daemon=True).start()

    def _watch(self, endpoint: Endpoint, server: subprocess.Popen[bytes], ended: threading.Event) -> None:
        silence = end_if_hung(endpoint, server, self._limits.hang, ended)
        if silence is not None:
            self._lost(f"no sign of life for {silence:.0f} s")

    def _wait_until_ready(self, url: str, version: int, log_start: int) -> None:
        connect = self._recipe.timeouts.connect
        client = EngineClient(Endpoint(url, self._api_key, connect, connect), attempts=1)
        deadline = time.monotonic() + self._limits.engine_start
        while time.monotonic() < deadline:
            if self._guard is not None and (code := self._guard.poll()) is not None:
                raise self._failure(f"the server ended with exit code {code}", log_start)
            try:
                reported = client.weights_version()
            except EngineUnavailable:
                time.sleep(POLL)
                continue
            if reported != version:
                raise self._failure(f"the server reports weights {reported}, not {version}", log_start)
            self._url = url
            return
        raise self._failure(f"the server did not answer within {self._limits.engine_start:g} s", log_start)

    def _failure(self, what: str, log_start: int) -> EngineFailed:
        with self._log_path.open("rb") as log:
            log.seek(log_start)
            text = log.read().decode(errors="replace")
        tail = "\n".join(text.splitlines()[-LOG_TAIL:])
        kind = _PortTaken if "address already in use" in text.lower() else EngineFailed
        return kind(f"{what}. The end of its log, {self._log_path}:\n{tail}")
