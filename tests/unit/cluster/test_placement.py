"""Which node and GPUs each engine and rank gets, and what Ray is asked to hold together."""

from typing import Any

import pytest

from configs.errors import UserError
from configs.schema import Recipe
from tasks.cluster.placement import Bundle, Layout, Node, place


def recipe(engine: dict[str, Any], learner: dict[str, Any]) -> Recipe:
    return Recipe.model_validate({"name": "placed", "engine": engine, "learner": learner})


def spots(layout: Layout) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {placed.name: (placed.node, placed.devices) for placed in layout.placed}


def bundle_of(layout: Layout, name: str) -> int | None:
    return next(placed.bundle for placed in layout.placed if placed.name == name)


NODE = Node(cpus=64, gpus=8)


def test_engines_come_first_and_ranks_fill_what_is_left():
    layout = place(recipe({"count": 2, "gpus": 2}, {"ranks": 6, "gpus": 1}), [NODE, NODE])

    assert spots(layout) == {
        "engine-0": (0, (0, 1)),
        "engine-1": (0, (2, 3)),
        **{f"learner-{rank}": (0, (4 + rank,)) for rank in range(4)},
        **{f"learner-{rank}": (1, (rank - 4,)) for rank in (4, 5)},
    }


def test_each_engine_is_a_bundle_and_so_are_the_ranks_of_a_node():
    layout = place(recipe({"count": 2, "gpus": 2, "cpus": 1}, {"ranks": 6, "gpus": 1, "cpus": 2}), [NODE, NODE])

    assert layout.bundles == [Bundle(0, 1, 2), Bundle(0, 1, 2), Bundle(0, 8, 4), Bundle(1, 4, 2)]
    assert [bundle_of(layout, f"learner-{rank}") for rank in range(6)] == [2, 2, 2, 2, 3, 3]


def test_ranks_that_follow_each_other_share_a_node_as_long_as_it_has_room():
    layout = place(recipe({"gpus": 8}, {"ranks": 24, "gpus": 1}), [NODE] * 4)

    nodes = [placed.node for placed in layout.placed if placed.kind == "learner"]
    assert nodes == sorted(nodes)
    assert [nodes.count(node) for node in (1, 2, 3)] == [8, 8, 8]


def test_colocated_ranks_are_on_the_gpus_of_the_engines_and_in_their_bundles():
    engine = {"count": 2, "gpus": 2, "cpus": 1, "placement": "colocated"}

    layout = place(recipe(engine, {"ranks": 4, "gpus": 1, "cpus": 2}), [Node(64, 2), Node(64, 2)])

    assert spots(layout) == {
        "engine-0": (0, (0, 1)),
        "engine-1": (1, (0, 1)),
        "learner-0": (0, (0,)),
        "learner-1": (0, (1,)),
        "learner-2": (1, (0,)),
        "learner-3": (1, (1,)),
    }
    assert layout.bundles == [Bundle(0, 5, 2), Bundle(1, 5, 2)]
    assert [bundle_of(layout, f"learner-{rank}") for rank in range(4)] == [0, 0, 1, 1]


def test_one_gpu_is_enough_for_both():
    layout = place(recipe({"gpus": 1, "placement": "colocated"}, {"gpus": 1}), [Node(8, 1)])

    assert spots(layout) == {"engine-0": (0, (0,)), "learner-0": (0, (0,))}


@pytest.mark.parametrize("placement", ["split", "colocated"])
def test_what_asks_for_nothing_is_in_no_bundle(placement: str):
    layout = place(recipe({"placement": placement}, {}), [Node(2, 0)])

    assert layout.bundles == []
    assert [placed.bundle for placed in layout.placed] == [None, None]


def test_cpus_are_room_too():
    layout = place(recipe({"count": 2, "cpus": 1}, {"ranks": 2, "cpus": 1}), [Node(2, 0), Node(2, 0)])

    assert [placed.node for placed in layout.placed] == [0, 0, 1, 1]
    assert layout.bundles == [Bundle(0, 1, 0), Bundle(0, 1, 0), Bundle(1, 2, 0)]


def test_nodes_may_differ():
    layout = place(recipe({"gpus": 4}, {"ranks": 2, "gpus": 1}), [Node(8, 8), Node(8, 0), Node(8, 2)])

    assert spots(layout)["engine-0"] == (0, (0, 1, 2, 3))
    assert spots(layout)["learner-1"] == (0, (5,))


def test_a_cluster_without_room_is_refused_with_what_is_needed_and_what_there_is():
    with pytest.raises(UserError, match=r"learner-1, which asks for 1 CPU .* need 3 CPU .* has 2 CPU .* on 1 nodes"):
        place(recipe({"cpus": 1}, {"ranks": 2, "cpus": 1}), [Node(2, 0)])


def test_room_on_several_nodes_does_not_help_an_engine_that_needs_one():
    with pytest.raises(UserError, match=r"engine-0, which asks for 3 CPU .* on one node"):
        place(recipe({"cpus": 3}, {}), [Node(2, 0), Node(2, 0)])
