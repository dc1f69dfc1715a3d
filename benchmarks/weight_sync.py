"""How long new weights take from the learner's memory into a running engine, by each way.

    python benchmarks/weight_sync.py

One SGLang server a model, whose weights change a little each time; from the call until the engine has reported the new
version and a checksum. By disk that is: the learner writes the weights, the engine loads them. The ways take turns,
after one turn that does not count. Writes benchmarks/weight_sync.json (machine, command, numbers) and .md (a table).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from configs.schema import Engine as EngineSettings
from configs.schema import Model, Recipe
from tasks.engine.engine import Engine
from tasks.run.directory import home
from tasks.tracking.provenance import provenance
from tasks.weights.from_memory import Sender
from trainer.model import policy
from trainer.model.pretrained import materialise
from trainer.state.export import Export

HERE = Path(__file__).parent
MODELS = ["tiny", "smollm2"]
WAYS = ["disk", "broadcast", "tensors"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    report = {
        "command": " ".join(["python", *sys.argv]),
        **provenance(),
        "load": os.getloadavg()[2],
        "bucket_bytes": Recipe(name="benchmark").weight_sync.bucket_bytes,
        "models": {name: measure(name, arguments.repeats) for name in MODELS},
    }
    target = HERE / "weight_sync"
    target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    target.with_suffix(".md").write_text(table(report))
    print(target.with_suffix(".md").read_text())


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Bytes of a model's weights, and the seconds of each way's turns."""
    model = Model(path=name, context_length=256)
    start = materialise(model, home() / "cache" / "models")
    learner = policy.load(start, temperature=1.0, dtype="float32")
    export = Export(learner, None)
    sizes = [tensor.nbytes for _, tensor in export.described()]
    with tempfile.TemporaryDirectory() as scratch:
        recipe = Recipe(name="benchmark", model=model, engine=EngineSettings(max_total_tokens=2048))
        engine = Engine(0, recipe, Path(scratch), "cpu")
        senders = {via: Sender(Recipe(name="benchmark", weight_sync={"via": via})) for via in WAYS[1:]}  # pyright: ignore[reportArgumentType]

        def by_disk(version: int) -> None:
            policy.save(learner, start, Path(scratch) / str(version))
            engine.publish(Path(scratch) / str(version), version)

        def from_memory(sender: Sender) -> Callable[[int], None]:
            def send(version: int) -> None:
                endpoint, _ = engine.reports() or sys.exit("the engine does not answer")
                sender.send(export.tensors(), sizes, version, [endpoint])

            return send

        ways = {"disk": by_disk} | {via: from_memory(sender) for via, sender in senders.items()}
        try:
            engine.start(start, 0)
            seconds: dict[str, list[float]] = {way: [] for way in WAYS}
            for turn in range(1 + repeats):
                for way in WAYS:
                    version = 1 + turn * len(WAYS) + WAYS.index(way)
                    with torch.no_grad():
                        next(learner.parameters()).mul_(1.001)
                    began = time.perf_counter()
                    ways[way](version)
                    seconds[way].append(time.perf_counter() - began)
                    print(name, way, seconds[way][-1], flush=True)
        finally:
            for sender in senders.values():
                sender.close()
            engine.stop()
    return {"bytes": sum(sizes), "tensors": len(sizes), "seconds": {way: each[1:] for way, each in seconds.items()}}


def table(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Weights from the learner into a running engine",
        "",
        f"`{report['command']}` on {report['machine']}, commit {report['commit'][:10]}; load average of a quarter "
        f"of an hour {report['load']:.1f}.",
        "",
        "From the call until one engine has reported the new version and a checksum of its tensors; float32, buckets "
        f"of {report['bucket_bytes'] / 2**20:.0f} MiB, gloo. `disk` is written by the learner and loaded by the "
        "engine; here the files come from the page cache, so that a disk's own time is not in it. Medians.",
        "",
        "| model | way | bytes | seconds | each (s) | MB/s |",
        "|---|---|---|---|---|---|",
    ]
    for name, model in report["models"].items():
        for way, each in model["seconds"].items():
            median = statistics.median(each)
            lines.append(
                f"| {name} | {way} | {model['bytes']:,} | {median:.2f} | {', '.join(f'{one:.2f}' for one in each)} "
                f"| {model['bytes'] / median / 1e6:.0f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
