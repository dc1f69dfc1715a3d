"""New weights for running engines, out of rank 0's memory.

    pause → TORN → begin → bucket after bucket → end → checksums → version → continue

From TORN to the new version a server reports that it has no version at all, and so does what it generates: whatever
dies in between, nobody takes its weights for one version or the other, and its engine replaces it. What a server was
generating when it was paused goes back to its queue and goes on with the new weights, its cache computed anew.

Servers that share their GPUs with the learner are paused since they released their memory and have no cache yet: their
engines give it to them, and let them continue, when they have weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice

import torch

from configs.schema import Recipe
from tasks.cluster.limits import limits
from tasks.server.client import TORN, Endpoint, EngineClient, WeightsNotUpdated, WeightsUnchanged
from tasks.weights.arrival import check_arrival
from tasks.weights.transports import TRANSPORTS, together
from trainer.state.export import Named, buckets


class Sender:
    """Rank 0's end of the weight sync, with what it keeps from one update to the next."""

    def __init__(self, recipe: Recipe) -> None:
        self._bucket_bytes = recipe.weight_sync.bucket_bytes
        self._limit, self._connect = limits(recipe, None).bucket, recipe.timeouts.connect  # seconds
        self._colocated = recipe.engine.colocated
        self._transport = TRANSPORTS[recipe.weight_sync.via](recipe)
        self._known: dict[str, tuple[list[int], str]] = {}

    def send(self, weights: Iterator[Named], sizes: Sequence[int], version: int, engines: Sequence[Endpoint]) -> None:
        """Bring running engines to a weights version.

        Args:
            weights: the full tensors by name.
            sizes: bytes of each of them.
            version: theirs.
            engines: one or more; those that share the learner's GPUs as `Engine.await_weights` leaves them.

        Raises:
            WeightsNotUpdated: one failed. Those that report TORN have to be replaced, others have what they had.
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
        prints: list[int] = []
        for number, count in enumerate(counts, start=1):
            bucket = list(islice(weights, count))
            prints += [int(torch.hash_tensor(tensor).item()) for _, tensor in bucket]
            self._transport.send(clients, bucket, last=number == len(counts))
        self._tell(clients, "/end_weight_update")
        self._check(clients, prints, version)
        self._tell(clients, "/update_weight_version", new_version=str(version), abort_all_requests=False)

    def _check(self, clients: Sequence[EngineClient], prints: list[int], version: int) -> None:
        """Believe engines only if all have the same weights now, and others than before where they got others.

        Args:
            clients: the engines.
            prints: a hash of each tensor that was sent.
            version: theirs.
        """
        checksums = together(*(client.weights_checksum for client in clients), timeout=self._limit)
        for client, checksum in zip(clients, checksums, strict=True):
            sent, before = self._known.get(client.url, (prints, None))
            check_arrival(client.url, version, before, checksum, lambda sent=sent: sent == prints)
            self._known[client.url] = prints, checksum
        if len(set(checksums)) > 1:
            raise WeightsUnchanged(f"after the same update engines have different checksums: {checksums}")

    @contextmanager
    def _paused(self, clients: Sequence[EngineClient]) -> Iterator[None]:
        """Have no engine generate within the block. What it was generating goes on after it, however the block ends."""
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
