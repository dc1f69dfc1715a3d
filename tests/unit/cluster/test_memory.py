"""What engine and learner take of a GPU that they share, by whose turn it is."""

from configs.schema import Recipe
from tasks.cluster.machines import GPUS
from tasks.cluster.memory import Demand, engine_demand, kept_demand, learner_demand, shared_demand
from trainer.model.shape import model_shape

SHAPE = model_shape("Qwen/Qwen3-1.7B")
MEMORY = GPUS["H100"].memory


def recipe(**learner: int) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "sized",
            "model": {"path": "Qwen/Qwen3-1.7B", "dtype": "bfloat16", "context_length": 1536},
            "engine": {
                "count": learner.get("ranks", 1),
                "gpus": 1,
                "placement": "colocated",
                "memory_fraction": 0.4,
            },
            "learner": {"gpus": 1, **learner},
            "algorithm": {"kl": {"coefficient": 0.001}},
        }
    )


def shared() -> dict[str, Demand]:
    return shared_demand(recipe(), SHAPE, MEMORY)


def test_during_the_rollout_the_engine_is_whole_and_the_learner_keeps_weights_and_moments():
    engine, learner = engine_demand(recipe(), SHAPE, MEMORY), learner_demand(recipe(), SHAPE)

    kept = sum(learner.parts[name] for name in ("weights", "optimizer", "reference", "runtime"))
    assert shared()["rollout"].total == engine.total + kept


def test_during_the_update_the_learner_is_whole_and_the_engine_keeps_what_is_no_tensor():
    assert (
        shared()["update"].total
        == learner_demand(recipe(), SHAPE).total + engine_demand(recipe(), SHAPE, MEMORY).parts["runtime"]
    )


def test_taking_turns_needs_less_than_both_at_once():
    both = engine_demand(recipe(), SHAPE, MEMORY).total + learner_demand(recipe(), SHAPE).total

    assert max(demand.total for demand in shared().values()) < both


def test_replicas_divide_the_ranks_that_a_weight_is_sharded_over():
    whole, halves = learner_demand(recipe(ranks=4), SHAPE), learner_demand(recipe(ranks=4, replicas=2), SHAPE)

    assert halves.parts["weights"] == 2 * whole.parts["weights"]
    assert halves.parts["activations"] == whole.parts["activations"]


def lagging(**learner: object) -> Recipe:
    stale = {"weight_sync": {"via": "broadcast"}, "pipeline": {"max_staleness": 2}}
    return Recipe.model_validate({"name": "sized", "learner": {"ranks": 4, **learner}, **stale})


def test_a_rank_keeps_its_shards_of_each_version_that_engines_may_lag_behind_and_of_those_only_what_it_trains():
    assert kept_demand(lagging(), SHAPE) == 2 * learner_demand(lagging(), SHAPE).parts["weights"]
    assert 0 < kept_demand(lagging(lora={"rank": 8}), SHAPE) < kept_demand(lagging(), SHAPE) / 20
    assert kept_demand(recipe(), SHAPE) == 0
