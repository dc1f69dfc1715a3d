"""The scorer inside a real Ray worker."""

from typing import Any

import psutil
import ray

from configs.reward import Reward
from tasks.records.question import Question
from tasks.reward.outcome import Answered
from tasks.reward.scorer import Scorer


class Worker:
    def __init__(self) -> None:
        self._scorer = Scorer(Reward.model_validate({"accuracy": "math", "timeout_seconds": 2.0}))

    def score(self, texts: list[str], gold: str) -> list[str]:
        question = Question("q", "", gold, "test")
        return [score.status for score in self._scorer.score([Answered(text, question, "stop", 1) for text in texts])]

    def processes(self) -> list[int]:
        return [child.pid for child in psutil.Process().children(recursive=True)]


def test_a_ray_worker_scores_symbolic_and_endless_answers_and_leaves_no_process(ray_cluster: None):
    worker: Any = ray.remote(num_cpus=0)(Worker).remote()
    texts = [r"\boxed{\frac{2}{\sqrt{2}}}", r"\boxed{9^{9^{9^9}}}", r"\boxed{\sqrt{3}}"]
    assert ray.get(worker.score.remote(texts, r"\sqrt{2}")) == ["right", "timeout", "wrong"]
    started = [psutil.Process(pid) for pid in ray.get(worker.processes.remote())]
    assert len(started) >= 2  # the nursery, and a worker or two: one that is not needed is not started
    ray.kill(worker)
    assert psutil.wait_procs(started, timeout=30)[1] == []
