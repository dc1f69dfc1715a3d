"""Is what the learner computes right on this machine's GPU, and how fast is it? NVIDIA or AMD, in less than 5 minutes.

    python benchmarks/gpu_check.py [--json FILE]

Compares packed attention, chunked log-probs and the policy's packed forward pass with plain ones in float64, then
measures forward and backward passes: tokens a second, model FLOPs utilisation, memory. The model has the shape of
Qwen3-0.6B and random weights, so nothing is downloaded. Without a GPU the same is done on the CPU with a tiny model.
What can't be done is skipped and says why; exit code 1 if something is wrong.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3Config, Qwen3ForCausalLM

from tasks.cluster.machines import GPUS, gpu_of
from trainer.batches.attention import attend, packing_of
from trainer.batches.collation import collate
from trainer.batches.packing import PackedRow, PromptResponse, pack
from trainer.model.policy import Dtype, Policy
from trainer.model.scoring import CHUNK_BYTES, score, score_in_chunks

Numbers = dict[str, float]


@dataclass(frozen=True)
class Work:
    """What is computed, and where.

    Attributes:
        device: `cuda` (AMD's GPUs too) or `cpu`.
        layers, hidden, inner, heads, key_value_heads, head: the model's shape; `head` is the width of one.
        vocabulary: tokens that it scores.
        groups, samples, prompt, response: groups of an update, samples of a group, tokens of a prompt and a response.
    """

    device: str
    layers: int
    hidden: int
    inner: int
    heads: int
    key_value_heads: int
    head: int
    vocabulary: int
    groups: int
    samples: int
    prompt: int
    response: int

    def group(self, seed: int) -> list[PromptResponse]:
        """Samples of random tokens with one prompt; their lengths differ a little, as in life."""
        rng = random.Random(seed)
        prompt = [rng.randrange(self.vocabulary) for _ in range(self.prompt)]
        lengths = [self.response - index % 3 for index in range(self.samples)]
        return [(prompt, [rng.randrange(self.vocabulary) for _ in range(length)]) for length in lengths]

    def model(self) -> Qwen3ForCausalLM:
        """A float32 model whose random weights are large enough for a token to matter."""
        torch.manual_seed(0)
        with torch.device(self.device):
            model = Qwen3ForCausalLM(
                Qwen3Config(
                    vocab_size=self.vocabulary,
                    hidden_size=self.hidden,
                    intermediate_size=self.inner,
                    num_hidden_layers=self.layers,
                    num_attention_heads=self.heads,
                    num_key_value_heads=self.key_value_heads,
                    head_dim=self.head,
                    initializer_range=0.05,
                    dtype="float32",
                )
            )
        return model.eval()


def work_for(device: str) -> Work:
    """What is a few minutes' work for a GPU, or a few seconds' for a CPU."""
    if device == "cuda":
        shape = {"layers": 28, "hidden": 1024, "inner": 3072, "heads": 16, "key_value_heads": 8, "head": 128}
        return Work(device, **shape, vocabulary=151_936, groups=4, samples=8, prompt=512, response=512)
    shape = {"layers": 2, "hidden": 64, "inner": 128, "heads": 4, "key_value_heads": 2, "head": 16}
    return Work(device, **shape, vocabulary=4096, groups=2, samples=4, prompt=24, response=12)


class Wrong(Exception):
    """A result is too far from its reference."""


class NotHere(Exception):
    """Something that a check needs is not here."""


def attention(work: Work) -> Numbers:
    """Packed attention and its gradients against a dense mask in float64."""
    row = pack([*work.group(0)[:2], *work.group(1)[:2]])
    mask = dense_mask(row).to(work.device)
    packing = packing_of(row, work.device)
    numbers = {}
    dtypes = {torch.float32: 1e-4} | ({torch.bfloat16: 3e-2} if work.device == "cuda" else {})
    for dtype, tolerance in dtypes.items():
        torch.manual_seed(1)
        shapes = [(1, heads, len(row.positions), work.head) for heads in (work.heads, *[work.key_value_heads] * 2)]
        inputs = [torch.randn(shape, device=work.device, dtype=dtype, requires_grad=True) for shape in shapes]
        exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
        query, key, value = inputs
        output, _ = attend(nn.Identity().eval(), query, key, value, None, packing)
        expected = scaled_dot_product_attention(*exact, attn_mask=mask, enable_gqa=True).transpose(1, 2)
        found = [output, *torch.autograd.grad(output.float().sin().sum(), inputs)]
        wanted = [expected, *torch.autograd.grad(expected.sin().sum(), exact)]
        pairs = zip(("output", "query", "key", "value"), found, wanted, strict=True)
        name = str(dtype).removeprefix("torch.")
        numbers |= {f"{name} {what}": error(ours, theirs, tolerance) for what, ours, theirs in pairs}
    return numbers


def dense_mask(row: PackedRow) -> Tensor:
    """[L, L] bool: who sees whom, written down block by block."""
    mask = torch.zeros(len(row.positions), len(row.positions), dtype=torch.bool)
    for block in row.blocks:
        own = slice(block.own.start, block.own.stop)
        mask[own, block.prompt.start : block.prompt.stop] = True
        mask[own, own] = torch.ones(len(block.own), len(block.own)).tril().bool()
    return mask


def logprobs(work: Work) -> Numbers:
    """Chunked log-probs, entropies and gradients against those of all logits at once in float64."""
    rows = 2 * CHUNK_BYTES[work.device] // (4 * work.vocabulary) + 7
    torch.manual_seed(2)
    head = nn.Linear(work.hidden, work.vocabulary, bias=False, device=work.device)
    hidden = torch.randn(rows, work.hidden, device=work.device, requires_grad=True)
    targets = torch.randint(work.vocabulary, (rows,), device=work.device)
    exact_head, exact_hidden = deepcopy(head).double(), hidden.detach().double().requires_grad_()
    before = reset_peak(work)
    chosen, entropies = score_in_chunks(head, hidden, targets, 0.7)
    gradients = torch.autograd.grad(chosen.sum(), [hidden, head.weight])
    gib = peak_gib(work, before)
    exact, exact_entropies = score(exact_head(exact_hidden), targets, 0.7)
    wanted = [exact, exact_entropies, *torch.autograd.grad(exact.sum(), [exact_hidden, exact_head.weight])]
    names = ("log-probs", "entropies", "gradient of states", "gradient of weights")
    found = zip(names, [chosen, entropies, *gradients], wanted, strict=True)
    return {name: error(ours, theirs, 1e-4) for name, ours, theirs in found} | gib


def forward(work: Work) -> Numbers:
    """The policy's log-probs of packed samples against the model's own, one sample after the other in float64."""
    model = work.model()
    exact = deepcopy(model).double()
    exact.set_attn_implementation("eager")
    samples = work.group(0)[:4]
    tokens = collate(samples, work.device)
    wanted = []
    with torch.no_grad():
        for prompt, response in samples:
            ids = torch.tensor([prompt + response], device=work.device)
            logits = exact(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
            wanted.append(score(logits, ids[0, len(prompt) :], 1.0)[0])
        expected = torch.cat(wanted)
        ours = Policy(model, 1.0, "float32")(tokens)[0][tokens.response_mask]
        rounded = Policy(model, 1.0, "bfloat16")(tokens)[0][tokens.response_mask]
    return {
        "float32": error(ours, expected, 1e-3),
        "bfloat16, mean difference": (rounded - expected).abs().mean().item(),
    }


@cache
def speed(work: Work) -> Numbers:
    """Seconds, tokens and memory of one update's forward and backward passes, a group a micro-batch."""
    dtype: Dtype = "bfloat16" if work.device == "cuda" else "float32"
    policy = Policy(work.model(), 1.0, dtype)
    groups = [collate(work.group(seed), work.device) for seed in range(work.groups)]

    def update() -> None:
        for tokens in groups:
            policy(tokens)[0].sum().backward()

    update()  # kernels are compiled, memory is found
    before = reset_peak(work)
    start = now(work)
    update()
    seconds = now(work) - start
    count = sum(len(tokens.input_ids) for tokens in groups)
    numbers = {
        "seconds": seconds,
        "packed tokens/s": count / seconds,
        "response tokens/s": sum(len(tokens.targets) for tokens in groups) / seconds,
        "TFLOP/s": needed_flops(work) / seconds / 1e12,
    }
    return numbers | peak_gib(work, before)


def utilisation(work: Work) -> Numbers:
    """Model FLOPs utilisation: what an update can't do without, over what the GPU could do by its data sheet."""
    if work.device != "cuda":
        raise NotHere("no GPU, and no data sheet for this CPU")
    name = torch.cuda.get_device_name()
    gpu = gpu_of(name)
    if gpu is None:
        raise NotHere(f"the peak of {name} is not known; known are {', '.join(GPUS)}")
    return {"share of the peak in bfloat16": speed(work)["TFLOP/s"] * 1e12 / gpu.peak}


CHECKS: dict[str, Callable[[Work], Numbers]] = {
    "packed attention": attention,
    "chunked log-probs": logprobs,
    "packed forward pass": forward,
    "forward and backward": speed,
    "utilisation": utilisation,
}


def needed_flops(work: Work) -> float:
    """Operations of an update's matrix products, each prompt once, nothing twice: see benchmarks/forward.py."""
    projections = 2 * work.hidden * work.head * (work.heads + work.key_value_heads)
    linear = work.layers * (projections + 3 * work.hidden * work.inner)
    flops = 0.0
    for seed in range(work.groups):
        lengths = [len(response) for _, response in work.group(seed)]
        row = work.prompt + sum(length - 1 for length in lengths)
        pairs = work.prompt * (work.prompt + 1) / 2
        pairs += sum(work.prompt + position for length in lengths for position in range(1, length))
        output = 2 * sum(lengths) * work.hidden * work.vocabulary
        flops += 2 * row * linear + 4 * work.layers * work.heads * work.head * pairs + output
    return 3 * flops


def error(found: Tensor, exact: Tensor, tolerance: float) -> float:
    """Return the largest difference, as a share of the largest exact value; raises Wrong beyond the tolerance."""
    share = ((found.double() - exact).abs().max() / exact.abs().max()).item()
    if not share <= tolerance:
        raise Wrong(f"off by {share:.2g} of the largest value, allowed are {tolerance:g}")
    return share


def now(work: Work) -> float:
    if work.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def reset_peak(work: Work) -> int:
    """Return the bytes that are held now; the peak is counted from here."""
    if work.device != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak_gib(work: Work, before: int) -> Numbers:
    return {"peak GiB": (torch.cuda.max_memory_allocated() - before) / 2**30} if work.device == "cuda" else {}


def run(check: Callable[[Work], Numbers], work: Work) -> dict[str, Any]:
    """Do one check; what it raises is in its outcome, so that the others are done too."""
    start = time.perf_counter()
    state, numbers, why = "right", {}, ""
    try:
        numbers = check(work)
    except (NotHere, ImportError) as problem:
        state, why = "skipped", str(problem)
    except Exception as problem:
        state, why = "wrong", f"{type(problem).__name__}: {problem}"
    if work.device == "cuda":
        torch.cuda.empty_cache()
    return {"state": state, "seconds": time.perf_counter() - start, "numbers": numbers, "why": why}


def check_all(work: Work) -> dict[str, Any]:
    """Return the report."""
    return {
        "device": torch.cuda.get_device_name() if work.device == "cuda" else "CPU",
        "torch": torch.__version__,
        "work": asdict(work),
        "checks": {name: run(check, work) for name, check in CHECKS.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the report here, too")
    arguments = parser.parse_args()
    report = check_all(work_for("cuda" if torch.cuda.is_available() else "cpu"))
    table = Table("check", "", "s", "numbers", title=f"{report['device']}, PyTorch {report['torch']}")
    for name, outcome in report["checks"].items():
        numbers = ", ".join(f"{key} {value:.3g}" for key, value in outcome["numbers"].items())
        table.add_row(name, outcome["state"], f"{outcome['seconds']:.1f}", numbers or outcome["why"])
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(any(outcome["state"] == "wrong" for outcome in report["checks"].values()))


if __name__ == "__main__":
    main()
