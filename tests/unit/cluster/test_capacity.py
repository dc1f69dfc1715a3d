"""Does a recipe fit? The same check for a plan and for a cluster, against what its nodes have."""

from math import inf

import pytest

from configs.errors import UserError
from configs.loader import load_recipe
from configs.schema import Recipe
from tasks.cluster.capacity import Capacity, capacity, require
from tasks.cluster.machines import GPUS, Gpu
from tasks.cluster.placement import Node
from trainer.model.shape import model_shape

GIB = 2**30
LAPTOP = Node(cpus=2, gpus=0, memory=12 * GIB)


def fit(recipe: Recipe, *nodes: Node, gpu: Gpu | None = None) -> Capacity:
    return capacity(recipe, nodes, gpu, model_shape(recipe.model.path))


def llama(ranks: int, **learner: object) -> Recipe:
    """Llama 70B: engines of eight GPUs on the first node, ranks on the others."""
    return Recipe.model_validate(
        {
            "name": "planned",
            "model": {"path": "meta-llama/Llama-3.1-70B-Instruct", "dtype": "bfloat16", "context_length": 4096},
            "engine": {"gpus": 8},
            "learner": {"ranks": ranks, "gpus": 1, **learner},
        }
    )


def test_the_default_recipe_fits_two_cores() -> None:
    require(fit(load_recipe("r1"), LAPTOP))


@pytest.mark.parametrize(("tokens", "fits"), [(64, False), (69, False), (70, True)])
def test_u14_a_cache_that_can_not_hold_one_sample_is_refused(tokens: int, fits: bool) -> None:
    found = fit(load_recipe("quickstart", [f"engine.max_total_tokens={tokens}"]), LAPTOP)

    assert (found.problems == []) == fits
    if not fits:
        with pytest.raises(UserError, match=r"engine\.max_total_tokens .*context_length 64: set at least 70"):
            require(found)


def test_too_little_memory_is_named_with_its_parts() -> None:
    found = fit(load_recipe("r1"), Node(2, 0, 2 * GIB))

    with pytest.raises(UserError, match=r"node 0 needs 4\.1 GiB: processes 4\.0.* of its own memory and has 2\.0"):
        require(found)


def test_no_cpu_left_for_a_task_is_named() -> None:
    recipe = load_recipe("r1", ["engine.cpus=1", "learner.cpus=1"])

    assert fit(recipe, Node(2.25, 0, inf)).problems == []
    with pytest.raises(UserError, match=r"one task need 2\.25 CPU, the cluster has 2\."):
        require(fit(recipe, Node(2, 0, inf)))


def test_missing_gpus_are_refused_with_what_there_is() -> None:
    with pytest.raises(UserError, match=r"engine\.gpus is 1, but a node has 0"):
        fit(load_recipe("r1", ["engine.gpus=1", "learner.gpus=1"]), LAPTOP)


def test_versions_that_the_learner_keeps_for_engines_that_lag_behind_take_memory() -> None:
    beside = ["pipeline.max_staleness=2", "algorithm.old_policy=behaviour", "algorithm.correction.weight=none"]
    disk, memory = (
        fit(load_recipe("r1", [*beside, f"weight_sync.via={via}"]), LAPTOP).hosts[0].total
        for via in ("disk", "broadcast")
    )

    assert memory - disk == 2 * 4 * model_shape("tiny").parameters


def test_each_rank_of_a_node_loads_the_whole_model_there() -> None:
    nodes = [Node(inf, 8, inf)] * 3
    weights = 4 * model_shape("meta-llama/Llama-3.1-70B-Instruct").parameters

    hosts = fit(llama(12), *nodes, gpu=GPUS["MI355X"]).hosts

    assert [hosts[node].parts.get("learner's whole model", 0) for node in range(3)] == [0, 8 * weights, 4 * weights]


@pytest.mark.parametrize(("kind", "fits"), [("MI300X", False), ("MI325X", False), ("MI355X", True)])
def test_a_model_that_fits_sharded_and_not_while_it_loads_does_not_fit(kind: str, fits: bool) -> None:
    """70.6 billion parameters in float32 are 262.8 GiB: more than 192 or 256, less than 288."""
    nodes = [Node(inf, 8, inf)] * 33
    found = fit(llama(256), *nodes, gpu=GPUS[kind])

    assert found.learner and found.learner.total < GPUS[kind].memory
    assert [problem[:16] for problem in found.problems] == ([] if fits else ["learner-0 takes "])


def test_before_a_model_is_here_only_the_places_are_compared() -> None:
    found = capacity(load_recipe("r1"), [Node(2, 0, 1)], None, None)

    assert (found.hosts, found.engine, found.problems) == ({}, None, [])
