"""How much GPU memory a recipe takes: estimates in bytes, to tell beforehand what can't fit."""

from dataclasses import dataclass

from configs.schema import Recipe
from trainer.model.shape import ModelShape

FP32, BF16 = 4, 2
RUNTIME = 2 * 2**30
"""Bytes that a process takes on its GPU besides its tensors: driver context, collective buffers, fragmentation."""
ACTIVATION_FACTOR = 34
"""Bytes a token, layer and hidden unit that a 16-bit decoder layer keeps for its backward pass, the attention matrix
not among them (Korthikanti et al. 2022, arXiv 2205.05198, equation 2 without its last term)."""
LOGITS_CHUNK = 2**30
WHILE_UPDATING = {"gradients", "gathered layers", "activations", "logits"}
"""Parts of a rank's demand that are free again after an update."""
LINEAR_LAYERS = 7
"""Of a decoder layer: four of the attention, three of the gated feed-forward network."""


@dataclass(frozen=True)
class Demand:
    """Bytes of one GPU, or of a node's own memory.

    Attributes:
        parts: by what they are for.
        loading: of a rank's GPU for a moment, while it loads; 0 where nothing is said of it.
    """

    parts: dict[str, int]
    loading: int = 0

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self.parts.values())


def engine_demand(recipe: Recipe, shape: ModelShape, gpu_memory: int) -> Demand:
    """Return what an engine takes of each of its GPUs: its share of weights, and the KV cache, which takes the rest."""
    bytes_each = _bytes_each(recipe)
    weights = shape.parameters * bytes_each // recipe.engine.gpus
    reserved = int(gpu_memory * recipe.engine.memory_fraction)
    one_context = recipe.model.served_context * cache_bytes_per_token(recipe, shape)
    return Demand({"weights": weights, "KV cache": max(reserved - weights, one_context), "runtime": RUNTIME})


def cached_tokens(recipe: Recipe, shape: ModelShape, gpu_memory: int) -> int:
    """Return the tokens that an engine's KV cache can hold."""
    return engine_demand(recipe, shape, gpu_memory).parts["KV cache"] // cache_bytes_per_token(recipe, shape)


def cache_bytes_per_token(recipe: Recipe, shape: ModelShape) -> int:
    """Return what a token takes of the KV cache on each GPU of an engine."""
    bytes_each = _bytes_each(recipe)
    return shape.cache_values * bytes_each // min(max(recipe.engine.gpus, 1), shape.cache_heads)


def learner_demand(recipe: Recipe, shape: ModelShape) -> Demand:
    """Return what a rank of the learner takes of its GPU while it updates.

    Weights, gradients and AdamW's two moments are float32 and sharded over the ranks of a replica; FSDP2 gathers a
    decoder layer at a time, two while the next one is fetched, and its gradient.
    """
    ranks = recipe.learner.ranks // recipe.learner.replicas
    lora, algorithm = recipe.learner.lora, recipe.algorithm
    share = -(-shape.parameters * FP32 // ranks)
    trained = _trained(recipe, shape)
    bytes_each = _bytes_each(recipe)
    states = recipe.optimizer.micro_batch_tokens * shape.hidden * bytes_each
    kept_layers = 1 if recipe.learner.gradient_checkpointing else shape.layers
    kept = states * kept_layers * ACTIVATION_FACTOR // BF16 + states * (shape.layers - kept_layers)
    gathered = 3 * shape.largest_block * bytes_each if ranks > 1 else 0
    parts = {
        "weights": share,
        "gradients": trained,
        "optimizer": 2 * trained,
        "gathered layers": gathered,
        "activations": kept,
        "logits": LOGITS_CHUNK,
        "runtime": RUNTIME,
    }
    if algorithm.needs_reference and not lora:
        parts["reference"] = share
    if algorithm.needs_teacher:
        parts["teacher"] = share  # as if it were as large as the policy
    if algorithm.needs_values:
        parts["critic"] = 4 * share
    # Each model is loaded whole, and then sharded; those that come after the policy find the policy there.
    more = {"reference", "teacher", "critic"} & parts.keys()
    resident = share + 2 * trained if more else 0
    return Demand(parts, loading=shape.parameters * FP32 + resident + RUNTIME)


def shared_demand(recipe: Recipe, shape: ModelShape, gpu_memory: int) -> dict[str, Demand]:
    """Return what engine and rank take of a GPU that they share, by whose turn it is.

    While the engines generate, the learner keeps what it needs from one update to the next. While it updates, an engine
    keeps what its process takes besides its tensors, which the memory saver has released.
    """
    engine, learner = engine_demand(recipe, shape, gpu_memory), learner_demand(recipe, shape)
    resting = {name: size for name, size in learner.parts.items() if name not in WHILE_UPDATING}
    return {
        "rollout": Demand(engine.parts | {f"learner's {name}": size for name, size in resting.items()}),
        "update": Demand(learner.parts | {"engine's runtime": engine.parts["runtime"]}),
    }


def _trained(recipe: Recipe, shape: ModelShape) -> int:
    """Return the size of the weights that a rank trains, in float32."""
    ranks, lora = recipe.learner.ranks // recipe.learner.replicas, recipe.learner.lora
    adapters = 2 * lora.rank * shape.hidden * LINEAR_LAYERS * shape.layers if lora else None
    return -(-(adapters or shape.parameters) * FP32 // ranks)


def _bytes_each(recipe: Recipe) -> int:
    """Return the size of a number of the engine's weights and of the learner's forward pass."""
    return BF16 if recipe.model.dtype == "bfloat16" else FP32


def engine_host_demand(recipe: Recipe, shape: ModelShape) -> Demand:
    """Return what an engine takes of its node's memory: on a CPU its weights, twice while it loads new ones, and cache.

    Weights on their way to a GPU are mapped from their files, which the system may let go.
    """
    if recipe.engine.gpus:
        return Demand({})
    weights, tokens = shape.parameters * _bytes_each(recipe), recipe.engine.max_total_tokens
    return Demand({"weights": 2 * weights, "KV cache": tokens * shape.cache_values * _bytes_each(recipe)})


def learner_host_demand(recipe: Recipe, shape: ModelShape) -> Demand:
    """Return what a rank takes of its node's memory.

    On a CPU that is what it would keep on a GPU. With a GPU it is the whole model in float32, which a rank loads before
    it shards it, and which the first one gathers to write it. Versions that engines may lag behind are on the host.
    """
    kept = {"older versions": kept_demand(recipe, shape)} if recipe.versions_kept else {}
    if recipe.learner.gpus:
        return Demand({"whole model": shape.parameters * FP32, **kept})
    passing = {"gathered layers", "activations", "logits", "runtime"}
    parts = {name: size for name, size in learner_demand(recipe, shape).parts.items() if name not in passing}
    return Demand(parts | kept)


def kept_demand(recipe: Recipe, shape: ModelShape) -> int:
    """Return the host memory of a rank's copies of what it trains, one for each version that engines may lag behind."""
    return recipe.versions_kept * _trained(recipe, shape)
