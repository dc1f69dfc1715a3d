from itertools import groupby
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.multiprocessing.spawn import start_processes
from transformers import PreTrainedModel, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from configs.learner import Lora
from tests.unit.trainer.tiny import SIZES, tiny_config
from trainer.model import lora, policy, sharding
from trainer.model.policy import Policy
from trainer.model.tiny_policy import build_tokenizer
from trainer.state.export import Export, IncompleteExport, buckets, check_complete

ADAPTERS = Lora(rank=2)
WORDS = len(build_tokenizer())


def moe() -> PreTrainedModel:
    """Its experts are one tensor in memory and one tensor each on disk."""
    config = Qwen3MoeConfig(
        vocab_size=WORDS,
        **SIZES,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
    )
    return Qwen3MoeForCausalLM(config)


def dense(tied: bool) -> PreTrainedModel:
    return Qwen3ForCausalLM(tiny_config(WORDS, tied=tied))


MODELS = {"tied": lambda: dense(True), "untied": lambda: dense(False), "mixture of experts": moe}


def start(folder: Path, name: str = "tied") -> Path:
    torch.manual_seed(0)
    MODELS[name]().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def load(folder: Path, adapted: bool = False) -> Policy:
    loaded = policy.load(folder, temperature=1.0, dtype="float32")
    if adapted:
        lora.inject(loaded.model, ADAPTERS, seed=0)
        for name, weight in loaded.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
    return loaded


def equal(sent: dict[str, Tensor], stored: dict[str, Tensor]) -> bool:
    return sent.keys() == stored.keys() and all(torch.equal(sent[name], stored[name]) for name in stored)


@pytest.mark.parametrize(
    ("name", "adapters"),
    [("tied", None), ("untied", None), ("mixture of experts", None), ("tied", ADAPTERS)],
    ids=["tied", "untied", "mixture of experts", "adapters"],
)
def test_what_is_sent_is_what_a_weights_folder_would_hold(tmp_path: Path, name: str, adapters: Lora | None):
    loaded = load(start(tmp_path / "start", name), adapted=bool(adapters))
    policy.save(loaded, tmp_path / "start", tmp_path / "stored", adapters)
    export = Export(loaded, adapters)

    sent = list(export.tensors())

    assert equal(dict(sent), load_file(tmp_path / "stored" / "model.safetensors"))
    described = [(name, tensor.shape, tensor.dtype) for name, tensor in export.described()]
    assert described == [(name, tensor.shape, tensor.dtype) for name, tensor in sent]
    check_complete(export.described(), tmp_path / "stored")


def test_tied_weights_are_sent_once_and_need_no_gradient(tmp_path: Path):
    sent = dict(Export(load(start(tmp_path)), None).tensors())

    assert "model.embed_tokens.weight" in sent
    assert "lm_head.weight" not in sent
    assert not any(tensor.requires_grad for tensor in sent.values())


def test_tensors_come_layer_by_layer(tmp_path: Path):
    names = [name for name, _ in Export(load(start(tmp_path, "untied")), None).tensors()]

    layers = [name.split(".")[2] if ".layers." in name else "none" for name in names]
    assert [layer for layer, _ in groupby(layers)] == ["none", "0", "1", "none"]


FOLDERS = {
    "a name too many": lambda stored: stored | {"strange": torch.ones(1)},
    "a name missing": lambda stored: {name: value for name, value in stored.items() if "norm" not in name},
    "another shape": lambda stored: stored | {"model.norm.weight": torch.ones(3)},
}


@pytest.mark.parametrize("change", FOLDERS.values(), ids=FOLDERS)
def test_what_is_not_the_content_of_a_weights_folder_is_refused_with_names(tmp_path: Path, change):
    export = Export(load(start(tmp_path)), None)
    stored = tmp_path / "model.safetensors"
    save_file(change(load_file(stored)), stored, {"format": "pt"})

    with pytest.raises(IncompleteExport, match=r"(strange|norm).*Set weight_sync\.via to disk"):
        check_complete(export.described(), tmp_path)


def test_a_tensor_that_would_be_sent_twice_is_refused(tmp_path: Path):
    described = Export(load(start(tmp_path)), None).described()

    with pytest.raises(IncompleteExport):
        check_complete([*described, described[0]], tmp_path)


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([], []),
        ([4, 4, 2], [2, 1]),
        ([4, 4, 4], [2, 1]),
        ([9, 1, 7, 1], [1, 2, 1]),
        ([1, 20, 1], [1, 1, 1]),
        ([0], [1]),
    ],
)
def test_a_bucket_is_full_or_one_tensor_that_is_larger(sizes: list[int], counts: list[int]):
    assert buckets(sizes, limit=8) == counts


GATHERED = {"plain": None, "adapters": ADAPTERS}


def rank_main(rank: int, folder: Path, out: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    for name, adapters in GATHERED.items():
        sharded = load(folder, adapted=bool(adapters))
        sharding.shard(sharded, "cpu")
        export = Export(sharded, adapters)
        check_complete(export.described(), out / name)
        save_file(dict(export.tensors()), out / f"{name}-{rank}.safetensors")
    dist.destroy_process_group()


def test_ranks_gather_what_each_has_a_share_of(tmp_path: Path):
    folder = start(tmp_path / "start")
    for name, adapters in GATHERED.items():
        policy.save(load(folder, adapted=bool(adapters)), folder, tmp_path / name, adapters)

    mp.get_context("forkserver").set_forkserver_preload([policy.__name__])
    start_processes(rank_main, (folder, tmp_path), nprocs=2, start_method="forkserver")

    for name in GATHERED:
        stored = load_file(tmp_path / name / "model.safetensors")
        for rank in (0, 1):
            assert equal(load_file(tmp_path / f"{name}-{rank}.safetensors"), stored)
