"""An actor in the place of an engine or a rank, in a module of its own: Ray's workers import it, and nothing heavy."""

import os
from collections.abc import Mapping

import ray

from tasks.processes.network import own_address


class StandIn:
    """Says where it is; it has the methods that colocated engines and ranks are asked for."""

    def place(self) -> tuple[str, str, int]:
        """Node, the GPUs that it sees, process."""
        return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid()

    def address(self) -> str:
        return own_address()

    def devices(self) -> list[str]:
        return os.environ["CUDA_VISIBLE_DEVICES"].split(",")

    def release(self) -> None:
        pass

    def use_devices(self, devices: Mapping[str, str]) -> None:
        os.environ.update(devices)

    def stop(self) -> None:
        pass
