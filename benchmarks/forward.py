"""The learner's forward and backward pass against the plain one: padded rows, logits of every token at once.

    python benchmarks/forward.py

One update's gradient of SmolLM2-135M over 4 groups of 8 samples, prompt 256 and responses 64 tokens, a group a
micro-batch. Each measurement is a process of its own, and the variants take turns. Writes benchmarks/forward.json
(machine, command, numbers), .md (a table) and .png (bars). Linux only: the kernel keeps the peak of the memory.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from configs.schema import Model
from tasks.run.directory import home
from tasks.tracking.provenance import provenance
from trainer.batches.collation import collate
from trainer.batches.packing import PromptResponse
from trainer.model import policy
from trainer.model.pretrained import materialise

HERE = Path(__file__).parent
GROUPS, SAMPLES, PROMPT, RESPONSE, VOCABULARY = 4, 8, 256, 64, 49152
Variant = tuple[nn.Module, Callable[[list[PromptResponse]], Tensor]]
"""A model, and its log-probs [N] of all response tokens of sequences."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--variant", choices=VARIANTS, help="measure this one here, and print it as JSON")
    arguments = parser.parse_args()
    folder = materialise(Model(path="smollm2"), home() / "cache" / "models")
    if arguments.variant:
        print(json.dumps(measure(arguments.variant, folder)))
        return
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for _ in range(arguments.repeats):
        for name in VARIANTS:
            command = [sys.executable, __file__, "--variant", name]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            runs[name].append(json.loads(output.splitlines()[-1]))
            print(name, runs[name][-1], flush=True)
    report = {
        "command": " ".join(["python", *sys.argv]),
        **provenance(),
        "load": os.getloadavg()[2],
        "runs": runs,
        "summary": {name: summary(measured) for name, measured in runs.items()},
    }
    target = HERE / "forward"
    target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    target.with_suffix(".md").write_text(table(report))
    draw(report["summary"], target.with_suffix(".png"))
    print(target.with_suffix(".md").read_text())


def padded(folder: Path) -> Variant:
    """Rows padded to the longest, logits of every token, as one writes it with transformers alone."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")

    def logprobs(sequences: list[PromptResponse]) -> Tensor:
        rows = [torch.tensor(prompt + response) for prompt, response in sequences]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # [B, L]
        lengths = torch.tensor([len(row) for row in rows])[:, None]
        prompts = torch.tensor([len(prompt) for prompt, _ in sequences])[:, None]
        columns = torch.arange(ids.shape[1])
        logits = model(ids, attention_mask=columns < lengths, use_cache=False).logits[:, :-1]  # [B, L - 1, V]
        distribution = logits.log_softmax(-1)
        with torch.no_grad():
            torch.special.entr(distribution.exp()).sum(-1)  # the entropy, which the learner reports
        chosen = distribution.gather(-1, ids[:, 1:, None]).squeeze(-1)
        return chosen[((columns >= prompts) & (columns < lengths))[:, 1:]]

    return model, logprobs


def packed(folder: Path) -> Variant:
    """What the learner does."""
    learner = policy.load(folder, temperature=1.0, dtype="float32")

    def logprobs(sequences: list[PromptResponse]) -> Tensor:
        tokens = collate(sequences)
        return learner(tokens)[0][tokens.response_mask]

    return learner, logprobs


VARIANTS: dict[str, Callable[[Path], Variant]] = {"padded": padded, "packed": packed}


def measure(name: str, folder: Path) -> dict[str, float]:
    """One update's gradient: seconds, peak memory beyond the loaded model, and what the variants must agree in."""
    rng = random.Random(0)
    groups: list[list[PromptResponse]] = []
    for _ in range(GROUPS):
        prompt = [rng.randrange(VOCABULARY) for _ in range(PROMPT)]
        groups.append([(prompt, [rng.randrange(VOCABULARY) for _ in range(RESPONSE)]) for _ in range(SAMPLES)])
    advantages = torch.tensor([rng.uniform(-1, 1) for _ in range(SAMPLES)]).repeat_interleave(RESPONSE)  # [N]
    before = matrix_product_flops()
    model, logprobs = VARIANTS[name](folder)
    needed = needed_flops(model)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is in memory now
    loaded = memory("VmRSS")

    def update(groups: list[list[PromptResponse]]) -> float:
        """Accumulate the gradient of the policy-gradient loss; returns the loss."""
        total = 0.0
        for group in groups:
            loss = -(advantages * logprobs(group)).sum() / (GROUPS * SAMPLES * RESPONSE)
            loss.backward()
            total += loss.item()
        return total

    update(groups[:1])  # warm-up
    model.zero_grad(set_to_none=False)
    start = time.perf_counter()
    loss = update(groups)
    seconds = time.perf_counter() - start
    peak_gib = (memory("VmHWM") - loaded) / 2**30
    peak_flops = max(before, matrix_product_flops())
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return {
        "seconds": seconds,
        "tokens_per_second": GROUPS * SAMPLES * RESPONSE / seconds,
        "peak_gib": peak_gib,
        "loss": loss,
        "gradient_norm": nn.utils.get_total_norm(gradients).item(),
        "matrix_product_gflops": peak_flops / 1e9,
        "share_of_matrix_product": needed / seconds / peak_flops,
    }


def memory(field: str) -> int:
    """Bytes of this process: VmRSS is what it holds, VmHWM the most that it held."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def matrix_product_flops() -> float:
    """Floating-point operations a second of a large float32 matrix product: the best of several."""
    size = 2048
    a, b, product = (torch.randn(size, size) for _ in range(3))
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        torch.mm(a, b, out=product)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def needed_flops(model: nn.Module) -> float:
    """Operations of the matrix products that one update can't do without, shared prompts once, nothing twice.

    A product of a token with a weight takes 2 operations an element in the forward pass, and twice that in the backward
    pass; attention 4 a head's element and pair of a query with a key that it sees.
    """
    config: Any = next(module.config for module in model.modules() if hasattr(module, "config"))
    linear = sum(
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not name.endswith("lm_head")
    )
    row = PROMPT + SAMPLES * (RESPONSE - 1)
    pairs = PROMPT * (PROMPT + 1) / 2 + SAMPLES * sum(PROMPT + position for position in range(1, RESPONSE))
    attention = 4 * config.num_hidden_layers * config.hidden_size * pairs
    output = 2 * SAMPLES * RESPONSE * config.hidden_size * config.vocab_size
    return 3 * GROUPS * (2 * row * linear + attention + output)


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Medians of a variant's runs; the peak is their largest."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]} | {
        "peak_gib": max(run["peak_gib"] for run in runs)
    }


def table(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    before, after = report["summary"]["padded"], report["summary"]["packed"]
    lines = [
        "# The learner's forward and backward pass",
        "",
        f"`{report['command']}` on {report['machine']}, commit {report['commit'][:10]}; load average of a quarter "
        f"of an hour {report['load']:.1f}.",
        "",
        f"One update's gradient of SmolLM2-135M in float32: {GROUPS} groups of {SAMPLES} samples, prompt {PROMPT}, "
        f"responses {RESPONSE} tokens, a group a micro-batch. `padded` is transformers with the logits of every token; "
        "`packed` is the learner: prompts computed once a group, no padding, the output layer for response tokens only "
        f"and in chunks. Medians of {len(report['runs']['packed'])} processes each, in turns; tokens are response "
        "tokens; the peak of memory is what the process held beyond the loaded model, gradients included. The last "
        "column is the operations a second that the update can't do without (each prompt once, nothing recomputed), as "
        "a share of a 2048² float32 matrix product measured in the same process.",
        "",
        "| variant | update (s) | each (s) | tokens/s | peak memory (GiB) | loss | gradient norm | share of peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, median in report["summary"].items():
        each = ", ".join(f"{run['seconds']:.1f}" for run in report["runs"][name])
        speed, peak, share = (median[key] for key in ("tokens_per_second", "peak_gib", "share_of_matrix_product"))
        lines.append(
            f"| {name} | {median['seconds']:.1f} | {each} | {speed:.1f} | {peak:.2f} "
            f"| {median['loss']:.6f} | {median['gradient_norm']:.6f} | {share:.0%} |"
        )
    lines += [
        "",
        f"**{before['seconds'] / after['seconds']:.1f} times as fast, "
        f"{after['peak_gib'] / before['peak_gib']:.2f} of the memory.** The large matrix product ran at "
        f"{after['matrix_product_gflops']:.0f} GFLOP/s.",
        "",
        "![bars](forward.png)",
        "",
    ]
    return "\n".join(lines)


def draw(medians: dict[str, dict[str, float]], target: Path) -> None:
    """Draw tokens a second and peak memory of each variant."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
    for plot, (key, title) in zip(
        axes,
        (("tokens_per_second", "response tokens a second"), ("peak_gib", "peak memory beyond the model (GiB)")),
        strict=True,
    ):
        bars = plot.bar(list(medians), [median[key] for median in medians.values()], color=["C7", "C0"], width=0.6)
        plot.bar_label(bars, fmt="%.1f")
        plot.set(title=title)
        plot.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main()
