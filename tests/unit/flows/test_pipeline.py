"""Which weights a step samples from, and what waits for what: the edges between the tasks that the flow submits."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

import flows.rl_post as flow
from configs.schema import Recipe
from tasks.run.directory import Run

STEPS = 6


class Node:
    """A submitted task: its name, and what it was given."""

    def __init__(self, stage: Any, parameters: dict[str, Any]) -> None:
        self.name, self.parameters = stage.task.name, parameters

    def result(self) -> dict[str, Any]:
        return {"seconds": 0.0}

    @property
    def inputs(self) -> Iterator["Node"]:
        for value in self.parameters.values():
            yield from (node for node in (value if isinstance(value, list) else [value]) if isinstance(node, Node))

    def comes_after(self, other: "Node") -> bool:
        return any(node is other or node.comes_after(other) for node in self.inputs)


class Graph:
    """What the flow submitted and committed."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.commits: list[int] = []

    def submit(self, stage: Any, **parameters: Any) -> Node:
        self.nodes.append(Node(stage, parameters))
        return self.nodes[-1]

    def commit(self, run: Run, step: int, metrics: Any) -> None:
        self.commits.append(step)

    def of(self, name: str, **numbers: int) -> Node:
        (found,) = (node for node in self.nodes if node.name == name and numbers.items() <= node.parameters.items())
        return found


class Silent:
    def __init__(self, *_: Any) -> None: ...
    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *_: object) -> None: ...
    def start(self, _: Any) -> None: ...
    def project(self, _: int) -> None: ...
    def check(self) -> None: ...
    def finish(self) -> dict[str, Any]:
        return {}


def submitted(
    monkeypatch: pytest.MonkeyPatch, staleness: int, committed: list[int], **sections: dict[str, Any]
) -> Graph:
    graph = Graph()

    @contextmanager
    def nothing(*_: Any) -> Iterator[None]:
        yield

    for name, value in {
        "submit": graph.submit,
        "commit": graph.commit,
        "committed_steps": lambda run: committed,
        "step_metrics": lambda *receipts: {},
        "story": nothing,
        "actors": nothing,
        "reserved": nothing,
        "engine_actors": lambda run: {},
        "learner_actors": lambda run: {},
        "Projections": Silent,
    }.items():
        monkeypatch.setattr(flow, name, value)
    recipe = Recipe.model_validate(
        {
            "name": "r",
            "steps": STEPS,
            "pipeline": {"max_staleness": staleness},
            "rollout": {"shards": 1},
            "evaluation": {"every": 2},
            **sections,
        }
    )
    flow._train(Run(Path("r"), recipe), Silent())  # pyright: ignore[reportArgumentType]
    return graph


@pytest.fixture(params=[0, 1, 2])
def staleness(request: pytest.FixtureRequest) -> int:
    return request.param


def sampled_from(graph: Graph, step: int) -> int:
    return graph.of("generate rollouts", step=step).parameters["weights"].parameters["version"]


def test_a_step_samples_from_the_weights_of_so_many_updates_before_its_own_last(
    monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    graph = submitted(monkeypatch, staleness, committed=[])

    versions = [sampled_from(graph, step) for step in range(1, STEPS + 1)]
    assert versions == [max(0, step - 1 - staleness) for step in range(1, STEPS + 1)]


def test_a_rollout_does_not_wait_for_the_updates_that_it_runs_beside(
    monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    graph = submitted(monkeypatch, staleness, committed=[])

    for step in range(2, STEPS + 1):
        rollout = graph.of("generate rollouts", step=step)
        waits_for = [update for update in range(1, step) if rollout.comes_after(graph.of("update policy", step=update))]
        assert waits_for == list(range(1, step - staleness))


def test_an_update_waits_for_weights_that_the_learner_is_to_send_beside_it_and_not_for_those_on_disk(
    monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    graphs = {via: submitted(monkeypatch, staleness, [], weight_sync={"via": via}) for via in ("disk", "broadcast")}

    for step in range(1 + staleness, STEPS + 1):
        waits = {
            via: graph.of("update policy", step=step).comes_after(graph.of("publish weights", version=step - staleness))
            for via, graph in graphs.items()
        }
        assert waits == {"disk": False, "broadcast": staleness > 0}


def test_engines_keep_their_weights_until_nobody_samples_from_them(
    monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    graph = submitted(monkeypatch, staleness, committed=[])

    for step in range(1, STEPS + 1):
        replaced_by = sampled_from(graph, step) + 1
        assert graph.of("publish weights", version=replaced_by).comes_after(graph.of("generate rollouts", step=step))
    for version in range(0, STEPS, 2):
        assert graph.of("publish weights", version=version + 1).comes_after(graph.of("evaluate", version=version))


def test_updates_go_one_after_the_other(monkeypatch: pytest.MonkeyPatch, staleness: int) -> None:
    graph = submitted(monkeypatch, staleness, committed=[])

    for step in range(2, STEPS + 1):
        assert graph.of("update policy", step=step).comes_after(graph.of("update policy", step=step - 1))


def test_engines_go_on_while_a_checkpoint_is_written_unless_the_learner_sends_them_their_weights(
    monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    graphs = {
        via: submitted(monkeypatch, staleness, [], weight_sync={"via": via}, learner={"checkpoint_every": 2})
        for via in ("disk", "broadcast")
    }

    for step in (2, 4):
        for via, graph in graphs.items():
            checkpoint = graph.of("save checkpoint", step=step)
            assert checkpoint.comes_after(graph.of("update policy", step=step))
            assert graph.of("update policy", step=step + 1).comes_after(checkpoint)
            assert graph.of("publish weights", version=step).comes_after(checkpoint) == (via == "broadcast")


def test_a_learner_that_sends_weights_does_one_thing_at_a_time(monkeypatch: pytest.MonkeyPatch, staleness: int) -> None:
    graph = submitted(monkeypatch, staleness, [], weight_sync={"via": "broadcast"}, learner={"checkpoint_every": 2})

    uses = ("update policy", "save checkpoint", "publish weights")
    for one, other in combinations([node for node in graph.nodes if node.name in uses], 2):
        assert one.comes_after(other) or other.comes_after(one)


def test_weights_are_published_one_version_after_the_other(monkeypatch: pytest.MonkeyPatch, staleness: int) -> None:
    graph = submitted(monkeypatch, staleness, committed=[])

    published = [graph.of("publish weights", version=version) for version in range(STEPS + 1)]
    assert all(after.comes_after(before) for before, after in pairwise(published))


def test_the_last_step_has_a_checkpoint_and_the_first_one_none(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = submitted(monkeypatch, 0, [], learner={"checkpoint_every": 4})

    assert [node.parameters["step"] for node in graph.nodes if node.name == "save checkpoint"] == [4, STEPS]


def test_every_step_is_committed_once_in_order(monkeypatch: pytest.MonkeyPatch, staleness: int) -> None:
    assert submitted(monkeypatch, staleness, committed=[]).commits == list(range(STEPS + 1))


def test_a_resumed_run_samples_from_the_same_weights(monkeypatch: pytest.MonkeyPatch, staleness: int) -> None:
    graph = submitted(monkeypatch, staleness, committed=[0, 1, 2, 3])

    versions = [sampled_from(graph, step) for step in range(4, STEPS + 1)]
    assert versions == [max(0, step - 1 - staleness) for step in range(4, STEPS + 1)]
    assert graph.commits[-3:] == [4, 5, 6]


def test_a_finished_run_that_is_resumed_does_nothing_new(monkeypatch: pytest.MonkeyPatch, staleness: int) -> None:
    graph = submitted(monkeypatch, staleness, committed=list(range(STEPS + 1)))

    assert max(graph.commits) == STEPS
    assert all(node.parameters["step"] <= STEPS for node in graph.nodes if node.name == "generate rollouts")


def test_a_learner_on_the_engines_gpus_waits_until_they_have_answered_the_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = {"engine": {"gpus": 1, "placement": "colocated"}, "learner": {"gpus": 1}}
    graph = submitted(monkeypatch, 0, [], **shared)

    for version in range(0, STEPS, 2):
        assert graph.of("update policy", step=version + 1).comes_after(graph.of("evaluate", version=version))
