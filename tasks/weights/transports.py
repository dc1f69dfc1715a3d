"""How a bucket of weights gets from rank 0's memory into engines: the transports, by their names in a recipe.

Each sends a bucket as one flat tensor, which SGLang takes apart by names, dtypes and shapes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import torch.distributed as dist
import torch.multiprocessing

from configs.schema import Recipe
from tasks.cluster.limits import limits
from tasks.processes.network import own_address
from tasks.server.client import EngineClient, WeightsNotUpdated
from trainer.distributed import open_rendezvous
from trainer.state.export import Named

GROUP = "rl-post"
"""The process group of the learner's rank 0, which is rank 0 here too, and of all ranks of all engines."""

FLAT = "flattened_bucket"
"""SGLang's name for one tensor of bytes with all tensors of a bucket, one after the other."""


class Transport(Protocol):
    """How buckets get into engines. RuntimeError or TimeoutError means that an engine did not get one."""

    def prepare(self, engines: Sequence[EngineClient]) -> None:
        """Do what is needed once for these engines."""
        ...

    def send(self, engines: Sequence[EngineClient], bucket: Sequence[Named], *, last: bool) -> None:
        """Have every engine load a bucket. With the last one, it drops the cache of the old weights."""
        ...

    def drop(self) -> None:
        """Undo `prepare`."""
        ...


class Broadcast:
    """One broadcast reaches all engines: NCCL or RCCL between GPUs, else gloo."""

    def __init__(self, recipe: Recipe) -> None:
        on_gpus = bool(recipe.learner.gpus and recipe.engine.gpus)
        self._backend, self._device = ("nccl", "cuda") if on_gpus else ("gloo", "cpu")
        self._ranks = max(recipe.engine.gpus, 1)  # of each engine
        self._limit = limits(recipe, None).bucket
        self._group: Any = None
        self._members: list[str] = []

    def prepare(self, engines: Sequence[EngineClient]) -> None:
        """Form a process group with these engines, unless it exists already."""
        members = [engine.url for engine in engines]
        if self._group is None or self._members != members:
            self.drop()
            self._meet(engines)
            self._members = members

    def send(self, engines: Sequence[EngineClient], bucket: Sequence[Named], *, last: bool) -> None:
        """Tell the engines what comes, and broadcast it."""
        flat, _ = _flattened(bucket)
        told = {
            "names": [name for name, _ in bucket],
            "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in bucket],
            "shapes": [list(tensor.shape) for _, tensor in bucket],
            "group_name": GROUP,
            "load_format": FLAT,
            "flush_cache": last,
        }
        together(
            partial(dist.broadcast, flat.to(self._device), src=0, group=self._group),
            *(partial(engine.command, "/update_weights_from_distributed", **told) for engine in engines),
            timeout=self._limit,
        )

    def drop(self) -> None:
        """Leave the group."""
        if self._group is not None:
            with suppress(ValueError):  # It already ended with the ranks' own group.
                dist.destroy_process_group(self._group)
        self._group = None

    def _meet(self, engines: Sequence[EngineClient]) -> None:
        from sglang.srt.utils import init_custom_process_group

        door = open_rendezvous(own_address())
        host, port, *_ = door.getsockname()
        total = 1 + len(engines) * self._ranks

        def lead() -> None:
            limit = timedelta(seconds=self._limit)
            store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
                host, port, total, True, limit, wait_for_workers=False, master_listen_fd=door.detach()
            )
            self._group = init_custom_process_group(
                backend=self._backend,
                store=dist.PrefixStore(GROUP, store),  # pyright: ignore[reportPrivateImportUsage]
                timeout=limit,
                world_size=total,
                rank=0,
                group_name=GROUP,
            )

        def join(index: int, engine: EngineClient) -> None:
            with suppress(WeightsNotUpdated):  # It may be in a group with a learner that is gone, or in none.
                engine.command("/destroy_weights_update_group", group_name=GROUP)
            engine.command(
                "/init_weights_update_group",
                master_address=host,
                master_port=port,
                rank_offset=1 + index * self._ranks,
                world_size=total,
                group_name=GROUP,
                backend=self._backend,
            )

        leading = in_thread(lead)
        try:
            together(*(partial(join, *numbered) for numbered in enumerate(engines)), timeout=self._limit)
        except BaseException:
            with suppress(Exception):  # Only after it ends can the group be left and its name be used again.
                leading.result()
            raise
        leading.result()


class SharedMemory:
    """Shared memory of this machine: an engine gets the name of a shared tensor and copies it."""

    def __init__(self, recipe: Recipe) -> None:
        self._ranks = max(recipe.engine.gpus, 1)  # of each engine
        self._limit = limits(recipe, None).bucket
        # Share by name: with file descriptors, torch's default, the server can't open the tensor and ends.
        torch.multiprocessing.set_sharing_strategy("file_system")

    def prepare(self, engines: Sequence[EngineClient]) -> None:
        """Nothing is kept for engines."""

    def send(self, engines: Sequence[EngineClient], bucket: Sequence[Named], *, last: bool) -> None:
        """Put a bucket into shared memory, for as long as the engines take to copy it."""
        from sglang.srt.utils import MultiprocessingSerializer

        flat, metadata = _flattened(bucket)
        shared = flat.cpu()
        payload = MultiprocessingSerializer.serialize({"flattened_tensor": shared, "metadata": metadata}, True)
        told = {"serialized_named_tensors": [payload] * self._ranks, "load_format": FLAT, "flush_cache": last}
        together(
            *(partial(engine.command, "/update_weights_from_tensor", **told) for engine in engines), timeout=self._limit
        )

    def drop(self) -> None:
        """Nothing is kept."""


TRANSPORTS: dict[str, Callable[[Recipe], Transport]] = {"broadcast": Broadcast, "tensors": SharedMemory}
"""By the name that a recipe has in `weight_sync.via`."""


def together(*calls: Callable[[], Any], timeout: float) -> list[Any]:
    """Make calls in parallel, each in a thread, and return their results in order.

    The first failure is raised at once. The other calls, which may wait for the failed one, are left running.

    Raises:
        TimeoutError: not all came back within `timeout` seconds.
    """
    made = [in_thread(call) for call in calls]
    done, late = wait(made, timeout, FIRST_EXCEPTION)
    for call in done:
        call.result()
    if late:
        raise TimeoutError(f"{len(late)} of {len(made)} calls did not come back within {timeout:g} s")
    return [call.result() for call in made]


def in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Begin a call in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    begun = pool.submit(call)
    pool.shutdown(wait=False)
    return begun


def _flattened(bucket: Sequence[Named]) -> tuple[torch.Tensor, Any]:
    """A bucket as one tensor of bytes, and where in it each tensor is."""
    from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket

    flattened = FlattenedTensorBucket(named_tensors=list(bucket))
    return flattened.get_flattened_tensor(), flattened.get_metadata()
