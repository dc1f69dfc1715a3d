"""The ranks that train together. One process alone needs no process group and is rank 0 of 1."""

import socket
from collections.abc import Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor


def open_rendezvous(host: str) -> socket.socket:
    """Open a rendezvous for ranks: listen on a free port at one of this machine's addresses.

    PyTorch by itself would listen on all interfaces.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=1024)


def join_group(
    address: str, rank: int, world_size: int, device: str, timeout: float, door: socket.socket | None = None
) -> None:
    """Join the process group. Returns when all ranks have joined.

    Args:
        address: `host:port` of rank 0's rendezvous; an IPv6 address has no brackets.
        rank: number of this rank.
        world_size: number of ranks.
        device: `cpu` (gloo) or `cuda` (NCCL or RCCL, and gloo for what is on the CPU).
        timeout: seconds that all ranks have to arrive.
        door: rank 0's socket from `open_rendezvous`, which this takes over.

    Raises:
        RuntimeError: not all ranks arrived in time.
    """
    host, port = address.rsplit(":", 1)
    limit = timedelta(seconds=timeout)
    listener = door.detach() if door else None
    store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
        host, int(port), world_size, door is not None, limit, wait_for_workers=False, master_listen_fd=listener
    )
    arrived = [f"arrived/{each}" for each in range(world_size)]
    store.set(arrived[rank], "")
    store.wait(arrived, limit)  # collectives may take longer than this
    backend = "gloo" if device == "cpu" else f"cpu:gloo,{device}:nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)


def leave_group() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def world_size() -> int:
    """Number of ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Number of this rank, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def barrier() -> None:
    """Return when every rank got here."""
    if dist.is_initialized():
        dist.barrier()


def reduce(values: Mapping[str, float], device: str, *, largest: bool = False) -> dict[str, float]:
    """Sum, or maximum, of each value over the ranks. All ranks must pass the same names in the same order."""
    if not dist.is_initialized():
        return dict(values)
    packed = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
    dist.all_reduce(packed, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return dict(zip(values, packed.tolist(), strict=True))


def all_reduce(values: Tensor, device: str) -> Tensor:
    """Sum of a CPU tensor over the ranks, communicated on `device`. All ranks must pass the same shape."""
    if not dist.is_initialized():
        return values
    summed = values.to(device)
    dist.all_reduce(summed)
    return summed.cpu()
