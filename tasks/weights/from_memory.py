"""New weights for running engines, out of rank 0's memory.

    pause → TORN → begin → bucket after bucket → end → checksums → version → continue

TORN means no version. The server and its responses report it until the new version is set. If a process dies in
between, nobody takes the weights for the old or the new version, and the engine replaces the server. A pause puts
unfinished samples back into the server's queue. They go on with the new weights, and their KV cache is computed again.

Servers that share their GPUs with the learner stay paused after they release their memory, and have no KV cache. When
they have weights, their engines give the cache back and let them continue.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice

import torch

from configs.schema import Recipe
from tasks.cluster.limits import limits
from tasks.server.client import TORN, Endpoint, EngineClient, WeightsNotUpdated, WeightsUnchanged
from tasks.weights.arrival import check_taken
from tasks.weights.transports import TRANSPORTS, together
from trainer.files import digest
from trainer.state.export import Named, buckets


class Sender:
    """Rank 0's end of the weight sync, with what it keeps from one update to the next."""

    def __init__(self, recipe: Recipe) -> None:
        self._bucket_bytes = recipe.weight_sync.bucket_bytes
        self._limit, self._connect = limits(recipe, None).bucket, recipe.timeouts.connect  # seconds
        self._colocated = recipe.engine.colocated
        self._transport = TRANSPORTS[recipe.weight_sync.via](recipe)
        self._dtype = getattr(torch, recipe.model.dtype)  # of the engines' weights
        self._known: dict[str, tuple[dict[str, int], dict[str, str]]] = {}

    def send(self, weights: Iterator[Named], sizes: Sequence[int], version: int, engines: Sequence[Endpoint]) -> None:
        """Bring running engines to a weights version.

        Args:
            weights: the full tensors by name.
            sizes: bytes of each of them.
            version: the version of these weights.
            engines: one or more; `Engine.await_weights` was called on those that share the learner's GPUs.

        Raises:
            WeightsNotUpdated: an engine failed. Engines that report TORN must be replaced. The others have the version
                that they report.
        """
        with ExitStack() as open_clients:
            clients = [open_clients.enter_context(EngineClient(engine, attempts=1)) for engine in engines]
            try:
                self._transport.prepare(clients)
                with nullcontext() if self._colocated else self._paused(clients):
                    self._update(clients, weights, buckets(sizes, self._bucket_bytes), version)
            except (RuntimeError, TimeoutError) as error:
                self.close()
                raise WeightsNotUpdated(f"weights {version} by {type(self._transport).__name__}: {error}") from error

    def close(self) -> None:
        """Let go of the engines."""
        self._transport.drop()
        self._known = {}

    def _update(
        self, clients: Sequence[EngineClient], weights: Iterator[Named], counts: Sequence[int], version: int
    ) -> None:
        self._tell(clients, "/update_weight_version", new_version=str(TORN), abort_all_requests=False)
        self._tell(clients, "/begin_weight_update")
        prints: dict[str, int] = {}
        for number, count in enumerate(counts, start=1):
            bucket = list(islice(weights, count))
            prints |= {name: int(torch.hash_tensor(tensor.to(self._dtype)).item()) for name, tensor in bucket}
            self._transport.send(clients, bucket, last=number == len(counts))
        self._tell(clients, "/end_weight_update")
        self._check(clients, prints, version)
        self._tell(clients, "/update_weight_version", new_version=str(version), abort_all_requests=False)

    def _check(self, clients: Sequence[EngineClient], prints: dict[str, int], version: int) -> None:
        """Check that all engines have equal weights now, and that each tensor that changed arrived.

        Args:
            clients: the engines.
            prints: a hash of each tensor that was sent, by name.
            version: the weights version that was sent.
        """
        checksums = together(*(client.tensor_checksums for client in clients), timeout=self._limit)
        for client, now in zip(clients, checksums, strict=True):
            if known := self._known.get(client.url):
                sent, before = known
                check_taken(client.url, version, before, now, sent, prints)
            self._known[client.url] = prints, now
        if any(now != checksums[0] for now in checksums):
            wholes = [digest(now) for now in checksums]
            raise WeightsUnchanged(f"after the same update engines have different checksums: {wholes}")

    @contextmanager
    def _paused(self, clients: Sequence[EngineClient]) -> Iterator[None]:
        """Pause generation on all engines within the block. It continues afterwards, however the block ends."""
        try:
            self._tell(clients, "/pause_generation", mode="retract")
            yield
        except BaseException:
            for client in clients:
                with suppress(RuntimeError, TimeoutError):
                    together(partial(client.command, "/continue_generation"), timeout=self._connect)
            raise
        self._tell(clients, "/continue_generation")

    def _tell(self, clients: Sequence[EngineClient], path: str, **body: object) -> None:
        together(*(partial(client.command, path, **body) for client in clients), timeout=self._limit)
