"""An actor in the place of an engine or a rank, in a module of its own: Ray's workers import it, and nothing heavy."""

import os
from collections.abc import Mapping
from pathlib import Path

import ray

from configs.schema import Recipe
from tasks.cluster.devices import CUDA, HIP, Accelerator
from tasks.processes.network import own_address
from tasks.run.directory import Run


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


class Holder:
    """Holds GPUs as an engine or a rank, and says what it finds in its environment."""

    def __init__(self, kind: str, gpus: int, accelerator: Accelerator) -> None:
        from tasks.engine.engine import Engine
        from tasks.update.learner_rank import LearnerRank

        learner, engine = ({"gpus": gpus}, {}) if kind == "rank" else ({}, {"gpus": gpus})
        if kind == "engine told otherwise":
            os.environ[CUDA] = "0,1,2,3,4,5,6,7"
        recipe = Recipe.model_validate({"name": "held", "learner": learner, "engine": engine})
        if kind == "rank":
            LearnerRank(Run(Path("run"), recipe), 0)
        else:
            Engine(0, recipe, Path("logs"), accelerator)

    def devices(self) -> dict[str, list[str]]:
        return {name: os.environ[name].split(",") for name in (CUDA, HIP) if name in os.environ}
