"""What engines are told, in which order, when new weights come from memory, and what is believed."""

from collections.abc import Sequence
from contextlib import nullcontext
from threading import Event
from typing import Any

import pytest
import torch

from configs.schema import Recipe
from tasks.server.client import TORN, Endpoint, WeightsNotUpdated, WeightsUnchanged
from tasks.weights import from_memory
from tasks.weights.arrival import check_taken
from tasks.weights.from_memory import Sender
from tasks.weights.transports import TRANSPORTS, together
from trainer.state.export import Named

FLOAT = 4  # bytes


class Server:
    """Notes what it is told; its checksum is that of the tensors that it was sent, unless it lies."""

    def __init__(self, name: str) -> None:
        self.url, self.told, self.loaded = name, [], {}
        self.fails_at: str | None = None
        self.lies = False
        self.deaf_to: set[str] = set()

    def command(self, path: str, **body: Any) -> None:
        self.told.append(f"{path} {body['new_version']}" if "new_version" in body else path)
        if path == self.fails_at:
            raise WeightsNotUpdated(f"{self.url} does not {path}")

    def load(self, bucket: Sequence[Named]) -> None:
        self.command(f"bucket of {len(bucket)}")
        if not self.lies:
            self.loaded |= {name: tensor.tolist() for name, tensor in bucket if name not in self.deaf_to}

    def tensor_checksums(self) -> dict[str, str]:
        self.told.append("checksum")
        return {name: str(value) for name, value in self.loaded.items()}

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None: ...


class Direct:
    """A way that is a call."""

    def __init__(self, _: Recipe) -> None:
        self.dropped = 0

    def prepare(self, engines: Sequence[Any]) -> None:
        for engine in engines:
            engine.told.append("prepared")

    def send(self, engines: Sequence[Any], bucket: Sequence[Named], *, last: bool) -> None:
        for engine in engines:
            engine.load(bucket)
            engine.told.append("cache forgotten" if last else "cache kept")

    def drop(self) -> None:
        self.dropped += 1


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    servers = {name: Server(name) for name in ("one", "two")}
    monkeypatch.setattr(from_memory, "EngineClient", lambda endpoint, attempts: servers[endpoint.url])
    monkeypatch.setitem(TRANSPORTS, "tensors", Direct)
    return list(servers.values())


def sender() -> Sender:
    return Sender(Recipe(name="r", weight_sync={"via": "tensors", "bucket_bytes": 2 * FLOAT}))  # pyright: ignore[reportArgumentType]


def send(sender: Sender, servers: Sequence[Server], version: int, value: float = 1.0) -> None:
    weights = [(name, torch.tensor([value])) for name in ("a", "b", "c")]
    sender.send(iter(weights), [FLOAT] * 3, version, [Endpoint(server.url, "key") for server in servers])


BEFORE = ["prepared", "/pause_generation", f"/update_weight_version {TORN}", "/begin_weight_update"]
BUCKETS = ["bucket of 2", "cache kept", "bucket of 1", "cache forgotten"]
AFTER = ["/end_weight_update", "checksum", "/update_weight_version 7", "/continue_generation"]


def test_an_engine_is_paused_and_of_no_version_from_before_the_first_bucket_until_after_the_check(
    servers: list[Server],
):
    send(sender(), servers, 7)

    for server in servers:
        assert server.told == [*BEFORE, *BUCKETS, *AFTER]
        assert server.loaded == {"a": [1.0], "b": [1.0], "c": [1.0]}


@pytest.mark.parametrize("fails_at", [*BEFORE[1:2], *BEFORE[3:], BUCKETS[2], "/end_weight_update"])
def test_where_an_update_fails_every_engine_goes_on_and_none_has_the_new_version(servers: list[Server], fails_at: str):
    servers[1].fails_at = fails_at
    failing = sender()

    with pytest.raises(WeightsNotUpdated, match=f"weights 7 by Direct: two does not {fails_at}"):
        send(failing, servers, 7)

    for server in servers:
        assert server.told[-1] == "/continue_generation"
        assert not any(told.endswith(" 7") for told in server.told)
    assert failing._transport.dropped == 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("fails_at", [None, BUCKETS[2]])
def test_engines_that_share_the_learners_gpus_are_paused_before_and_stay_so(
    servers: list[Server], fails_at: str | None
):
    shared = {"engine": {"gpus": 1, "placement": "colocated"}, "learner": {"gpus": 1}}
    recipe = {"name": "r", "weight_sync": {"via": "tensors", "bucket_bytes": 2 * FLOAT}, **shared}
    servers[0].fails_at = fails_at

    with pytest.raises(WeightsNotUpdated) if fails_at else nullcontext():
        send(Sender(Recipe.model_validate(recipe)), servers[:1], 7)

    (server, _) = servers
    whole = ["prepared", *BEFORE[2:], *BUCKETS, *AFTER[:-1]]
    assert server.told == (whole[: whole.index(fails_at) + 1] if fails_at else whole)


def test_an_engine_that_says_success_and_has_the_weights_of_before_does_not_get_the_version(servers: list[Server]):
    believing = sender()
    send(believing, servers[:1], 6, value=1.0)
    servers[0].lies = True

    with pytest.raises(
        WeightsNotUpdated, match="one said that it loaded weights 7, but its tensors are those of before"
    ):
        send(believing, servers[:1], 7, value=2.0)
    assert "/update_weight_version 7" not in servers[0].told


@pytest.mark.parametrize("deaf_to", ["a", "b", "c"])
def test_u18_an_engine_that_passes_over_a_name_does_not_get_the_version(servers: list[Server], deaf_to: str):
    believing = sender()
    send(believing, servers[:1], 6, value=1.0)
    servers[0].deaf_to = {deaf_to}

    with pytest.raises(
        WeightsNotUpdated, match=f"one said that it loaded weights 7, but took 2 of 3 .*; {deaf_to} did not arrive"
    ):
        send(believing, servers[:1], 7, value=2.0)
    assert "/update_weight_version 7" not in servers[0].told


# What an engine has before and after, and what was sent: its own names are those of SGLang's Llama.
LAYER = ["q_proj", "k_proj", "v_proj", "o_proj"]
SENT = {f"model.layers.{layer}.self_attn.{part}.weight": layer for layer in (0, 1) for part in LAYER} | {"lm_head.w": 5}
HAS = {f"model.layers.{layer}.self_attn.{part}.weight": "old" for layer in (0, 1) for part in ("qkv_proj", "o_proj")}
HAS |= {"lm_head.w": "old"}


def taken(changed: set[str], altered: set[str]) -> None:
    now = {name: "new" if name in altered else value for name, value in HAS.items()}
    sent = {name: value + 9 if name in changed else value for name, value in SENT.items()}
    check_taken("one", 7, HAS, now, SENT, sent)


def test_u18_tensors_that_an_engine_joins_count_as_taken():
    taken({name for name in SENT}, {name for name in HAS})
    taken({"model.layers.1.self_attn.k_proj.weight"}, {"model.layers.1.self_attn.qkv_proj.weight"})
    taken({"lm_head.w"}, {"lm_head.w"})
    taken(set(), set())


@pytest.mark.parametrize(
    ("changed", "altered", "lost"),
    [
        (set(SENT), set(HAS) - {"model.layers.1.self_attn.qkv_proj.weight"}, "layers.1.self_attn.k_proj.weight"),
        (set(SENT), set(HAS) - {"lm_head.w"}, "took 8 of 9 .* lm_head.w did not arrive"),
        (set(SENT), set(HAS) - {"model.layers.0.self_attn.o_proj.weight"}, "layers.0.self_attn.o_proj.weight"),
        ({"model.layers.1.self_attn.q_proj.weight"}, {"lm_head.w"}, "took 0 of 1 tensors"),
        ({"lm_head.w"}, set(), "its tensors are those of before"),
    ],
)
def test_u18_what_changed_and_did_not_arrive_is_named(changed: set[str], altered: set[str], lost: str):
    with pytest.raises(WeightsUnchanged, match=lost):
        taken(changed, altered)


def test_an_update_that_changed_no_weight_is_no_lie(servers: list[Server]):
    believing = sender()
    for version in (6, 7):
        send(believing, servers, version, value=1.0)

    assert "/update_weight_version 7" in servers[0].told


def test_engines_that_differ_after_the_same_update_do_not_get_the_version(servers: list[Server]):
    servers[1].lies = True

    with pytest.raises(WeightsNotUpdated, match="different checksums"):
        send(sender(), servers, 7)
    assert not any("/update_weight_version 7" in server.told for server in servers)


def test_calls_are_made_together_and_their_results_are_in_order():
    first, second = Event(), Event()

    def call(own: Event, other: Event, value: int) -> int:
        own.set()
        assert other.wait(10)
        return value

    assert together(lambda: call(first, second, 1), lambda: call(second, first, 2), timeout=20) == [1, 2]


def test_a_failure_is_raised_while_the_others_still_wait_for_the_one_that_failed():
    released = Event()

    def fail() -> None:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        together(lambda: released.wait(60), fail, timeout=60)
    released.set()


def test_calls_that_do_not_come_back_are_given_up():
    released = Event()

    with pytest.raises(TimeoutError, match=r"1 of 2 calls did not come back within 0\.01 s"):
        together(lambda: released.wait(60), lambda: None, timeout=0.01)
    released.set()
