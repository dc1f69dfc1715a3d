"""A real SGLang server on a CPU, behind Engine and EngineClient."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import httpx
import psutil
import pytest

from configs import schema
from configs.timeouts import Timeouts
from tasks.engine.engine import Engine, EngineFailed
from tasks.rollout.fleet import Fleet
from tasks.rollout.fleet import Request as Together
from tasks.server.client import EngineClient, EngineRefused, Response, WeightsNotUpdated
from tests import contract
from tests.contract import *  # noqa: F403 - what the fake passes too
from tests.integration.conftest import LiveEngine
from trainer.model.tiny_policy import EOS_ID, VOCABULARY

PROMPT = [4, 11, 12, 13, 5]
Request = tuple[list[int], int, float]  # prompt ids, seed, temperature


def requests(number: int) -> list[Request]:
    """Four samples a prompt, of one to 60 tokens each, a few of them greedy."""
    generator = random.Random(0)
    prompts = [
        [generator.randrange(3, len(VOCABULARY)) for _ in range(generator.randint(1, 60))] for _ in range(number // 4)
    ]
    return [(prompts[i // 4], 100 + i, 0.0 if i % 7 == 0 else 1.0) for i in range(number)]


def answer(client: EngineClient, wanted: Sequence[Request], at_once: int) -> list[Response]:
    """Answer all requests, each in an HTTP request of its own, with so many of them in flight."""

    def one(request: Request) -> Response:
        (response,) = client.generate([request[0]], [request[1]], request[2], max_tokens=24)
        return response

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, wanted))


def sample(
    client: EngineClient, prompt: list[int], seeds: Sequence[int], temperature: float, max_tokens: int
) -> list[Response]:
    """Sample one prompt several times in one request."""
    return client.generate([prompt] * len(seeds), seeds, temperature, max_tokens)


@pytest.fixture
def server(live_engine: LiveEngine, tmp_path: Path) -> contract.Server:
    """The real server, for the tests of the contract."""
    broken = copytree(live_engine.folders[0], tmp_path / "broken")
    contract.break_weights(broken)
    endpoint = live_engine.engine.publish(live_engine.folders[0], 0)
    return contract.Server(endpoint, (live_engine.folders[0], 0), broken)


def flush(live_engine: LiveEngine) -> None:
    """Empty the server's prefix cache."""
    endpoint = live_engine.engine.publish(live_engine.folders[0], 0)
    answer = httpx.post(
        f"{endpoint.url}/flush_cache?timeout=10", headers={"Authorization": f"Bearer {endpoint.api_key}"}
    )
    answer.raise_for_status()


def server_processes() -> list[psutil.Process]:
    """All guards that this process started, and the processes under them; not those of Ray or of other services."""
    guards = [child for child in psutil.Process().children() if "tasks.processes.guard" in child.cmdline()]
    return [process for guard in guards for process in (guard, *guard.children(recursive=True))]


def test_responses_are_ids_with_their_log_probs_a_reason_and_a_version(live_engine: LiveEngine):
    responses = sample(live_engine.client(), PROMPT, seeds=list(range(32)), temperature=1.0, max_tokens=12)
    assert {response.finish_reason for response in responses} == {"stop", "length"}
    for response in responses:
        assert len(response.ids) == len(response.logprobs)
        assert all(logprob <= 0 for logprob in response.logprobs)
        assert all(0 <= token < len(VOCABULARY) for token in response.ids)
        assert response.weights_version == 0


def test_a_stopped_response_ends_with_the_eos_and_a_cut_one_is_as_long_as_allowed(live_engine: LiveEngine):
    for response in sample(live_engine.client(), PROMPT, seeds=list(range(32)), temperature=1.0, max_tokens=12):
        assert EOS_ID not in response.ids[:-1]
        if response.finish_reason == "stop":
            assert response.ids[-1] == EOS_ID
        else:
            assert len(response.ids) == 12
            assert response.ids[-1] != EOS_ID


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_those_of_the_policy_at_the_sampling_temperature(live_engine: LiveEngine, temperature: float):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(live_engine.folders[0], dtype=torch.float32)
    (response,) = sample(live_engine.client(), PROMPT, seeds=[5], temperature=temperature, max_tokens=12)

    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + response.ids])).logits[0, len(PROMPT) - 1 : -1]
    expected = (logits / temperature).log_softmax(-1)[range(len(response.ids)), response.ids]
    torch.testing.assert_close(torch.tensor(response.logprobs), expected, atol=2e-5, rtol=0)


def test_samples_are_drawn_from_the_policys_distribution(live_engine: LiveEngine):
    # First tokens of 2,000 samples against the policy's own probabilities: the largest of 56 deviations stays within
    # 4.5 standard deviations, sqrt(p (1 - p) / 2000).
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(live_engine.folders[0], dtype=torch.float32)
    with torch.no_grad():
        probs = model(torch.tensor([PROMPT])).logits[0, -1].softmax(-1)
    responses = sample(live_engine.client(), PROMPT, seeds=list(range(2000)), temperature=1.0, max_tokens=1)
    counts = torch.bincount(torch.tensor([response.ids[0] for response in responses]), minlength=len(probs))
    assert ((counts / 2000 - probs).abs() <= 4.5 * (probs * (1 - probs) / 2000).sqrt() + 1e-3).all()


def test_the_same_seed_gives_the_same_sample_and_other_seeds_others(live_engine: LiveEngine):
    client = live_engine.client()
    first = sample(client, PROMPT, seeds=[1, 2, 3, 1], temperature=1.0, max_tokens=24)
    second = sample(client, PROMPT, seeds=[3, 1], temperature=1.0, max_tokens=24)
    assert first[0] == first[3] == second[1]
    assert first[2] == second[0]
    assert len({tuple(response.ids) for response in first[:3]}) == 3


def test_temperature_zero_is_greedy_whatever_the_seed(live_engine: LiveEngine):
    one, other = sample(live_engine.client(), PROMPT, seeds=[1, 2], temperature=0.0, max_tokens=12)
    assert one == other


@pytest.fixture(scope="module")
def reference(live_engine: LiveEngine) -> list[Response]:
    """32 requests at once, from an empty cache."""
    client = live_engine.client()
    flush(live_engine)
    return answer(client, requests(32), at_once=32)


@pytest.mark.parametrize("at_once", [1, 3, 32])
@pytest.mark.parametrize("order", ["same order", "shuffled"])
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_sample_is_the_same_bits_whatever_runs_beside_it(
    live_engine: LiveEngine, reference: list[Response], at_once: int, order: str, cache: str
):
    client = live_engine.client()
    indices = list(range(32))
    if order == "shuffled":
        random.Random(1).shuffle(indices)
    if cache == "cold":
        flush(live_engine)
    wanted = requests(32)
    responses = answer(client, [wanted[i] for i in indices], at_once)
    assert responses == [reference[i] for i in indices]


def test_a_prompt_that_does_not_fit_is_refused(live_engine: LiveEngine):
    with pytest.raises(EngineRefused, match="400"):
        sample(live_engine.client(), [4] * 300, seeds=[1], temperature=1.0, max_tokens=4)


def test_new_weights_change_the_samples_and_their_version_and_come_back(live_engine: LiveEngine):
    def at(version: int) -> list[Response]:
        return sample(live_engine.client(version), PROMPT, seeds=[1, 2], temperature=1.0, max_tokens=12)

    old, new, again = at(0), at(1), at(0)
    assert {response.weights_version for response in new} == {1}
    assert [response.ids for response in new] != [response.ids for response in old]
    assert again == old


def test_a_start_at_the_version_that_runs_changes_nothing(live_engine: LiveEngine):
    live_engine.client()
    before = {process.pid for process in server_processes()}
    assert live_engine.engine.start(live_engine.folders[0], 0) == live_engine.engine.url()
    assert {process.pid for process in server_processes()} == before


@pytest.mark.parametrize("content", [None, b"torn"], ids=["no folder", "torn file"])
def test_weights_that_can_not_be_loaded_are_an_error_and_the_engine_keeps_its_own(
    live_engine: LiveEngine, tmp_path: Path, content: bytes | None
):
    expected = sample(live_engine.client(0), PROMPT, seeds=[1], temperature=1.0, max_tokens=12)
    folder = tmp_path / "broken"
    if content:
        folder.mkdir()
        for file in live_engine.folders[1].iterdir():
            (folder / file.name).write_bytes(content if file.suffix == ".safetensors" else file.read_bytes())

    with pytest.raises(WeightsNotUpdated, match="broken"):
        live_engine.engine.publish(folder, 7)
    assert sample(live_engine.client(0), PROMPT, seeds=[1], temperature=1.0, max_tokens=12) == expected


def test_a_stranger_without_the_key_is_turned_away_and_the_key_is_in_no_log_or_command(live_engine: LiveEngine):
    endpoint = live_engine.engine.publish(live_engine.folders[0], 0)
    assert httpx.post(f"{endpoint.url}/generate", json={"input_ids": PROMPT}).status_code == 401
    assert endpoint.api_key not in (live_engine.log_dir / "engine-0.log").read_text()
    assert not any(endpoint.api_key in " ".join(process.cmdline()) for process in server_processes())


def test_a_server_that_can_not_start_is_an_error_with_the_end_of_its_log(tmp_path: Path):
    before = {process.pid for process in server_processes()}
    engine = Engine(1, schema.Recipe(name="r"), tmp_path, "cpu")
    with pytest.raises(EngineFailed, match=r"exit code \d+.*engine-1.log") as failure:
        engine.start(tmp_path / "nothing here", 0)
    assert "nothing here" in str(failure.value).split("engine-1.log")[1]
    assert {process.pid for process in server_processes()} == before


def test_a_server_that_starts_too_slowly_is_ended(tiny_weights: dict[int, Path], tmp_path: Path):
    before = {process.pid for process in server_processes()}
    engine = Engine(1, schema.Recipe(name="r", timeouts=Timeouts(engine_start=0.5)), tmp_path, "cpu")
    with pytest.raises(EngineFailed, match=r"did not answer within 0.5 s"):
        engine.start(tiny_weights[0], 0)
    assert {process.pid for process in server_processes()} == before


def test_stop_leaves_no_process(live_engine: LiveEngine):
    live_engine.client(0)
    before = server_processes()
    live_engine.engine.stop()
    _, alive = psutil.wait_procs(before, timeout=5)
    assert not alive


def test_a_killed_server_comes_back_with_the_weights_asked_for(live_engine: LiveEngine):
    expected = sample(live_engine.client(1), PROMPT, seeds=[1, 2], temperature=1.0, max_tokens=12)
    before = server_processes()
    (server,) = [process for process in before if process.cmdline()[1:3] == ["-m", "sglang.launch_server"]]
    server.kill()
    again = sample(live_engine.client(1), PROMPT, seeds=[1, 2], temperature=1.0, max_tokens=12)
    assert again == expected
    _, alive = psutil.wait_procs(before, timeout=5)
    assert not alive


def test_a_response_that_was_cut_off_goes_on_as_if_it_had_not_been(live_engine: LiveEngine) -> None:
    long = [Together([[4, 11, 12]], [seed], [200]) for seed in range(8)]
    short = Together([[5, 11]], [9], [20])
    with Fleet([live_engine.client], in_flight=9) as fleet:
        expected = [response for (response,) in fleet.generate(long, 1.0, wanted=8)]
        *answers, _ = fleet.generate([*map(again, long), short], 1.0, wanted=1)
        # What was not begun when the first one was ready has no response.
        begun = [(number, responses[0]) for number, responses in enumerate(answers) if responses]
        cut = {number: one for number, one in begun if one.finish_reason == "abort"}
        rest = [Together([[4, 11, 12, *one.ids]], [number], [200 - len(one.ids)]) for number, one in cut.items()]
        ends = [response for (response,) in fleet.generate(rest, 1.0, wanted=len(rest))]

    assert any(one.ids for one in cut.values())
    for (number, one), end in zip(cut.items(), ends, strict=True):
        assert one.ids + end.ids == expected[number].ids
        assert one.logprobs + end.logprobs == expected[number].logprobs


def again(request: Together) -> Together:
    """Return the same request under new names."""
    return Together(request.prompts, request.seeds, request.max_tokens)
