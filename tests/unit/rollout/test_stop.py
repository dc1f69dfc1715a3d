"""U06: a base model runs on; its response ends where it would begin a question of its own."""

from collections.abc import Sequence
from typing import cast

import pytest
from tokenizers import Tokenizer

from configs.loader import load_recipe
from configs.schema import PLAIN_STOPS
from tasks.records.question import Prompt, Question
from tasks.records.samples import SampleRow
from tasks.reward.task import score_rows
from tasks.rollout.fleet import Fleet
from tasks.rollout.shard import Sampling, begin, roll_out
from tasks.server.client import EngineClient, Response
from tests.unit.rollout.byte_tokenizer import EOS, byte_tokenizer

TEXT = byte_tokenizer()


class Saying:
    """An engine that says a text to every prompt, in the ids of its bytes, and ends as it is told."""

    def __init__(self, said: str, finish: str = "length", at_text: bool = False) -> None:
        self.ids = TEXT.encode(said, add_special_tokens=False).ids + ([EOS] if finish == "stop" and not at_text else [])
        self.finish, self.at_text = finish, at_text

    def generate(self, prompts: Sequence[Sequence[int]], *_: object) -> list[Response]:
        logprobs = [-float(place) for place in range(len(self.ids))]
        return [Response(self.ids, logprobs, self.finish, 0, at_text=self.at_text) for _ in prompts]  # pyright: ignore[reportArgumentType]

    def close(self) -> None: ...


def sample(engine: Saying, stop: Sequence[str] = PLAIN_STOPS, begun: str = "") -> SampleRow:
    """One sample of a prompt, of which something may be there already."""
    sampling = Sampling(samples=1, max_tokens=200, temperature=1.0, run_seed=0, stop=tuple(stop))
    (row,) = begin([(0, Prompt(Question("q", "2 + 3?", "5", "s", "{}"), [1, 2]))], 1, sampling)
    ids = TEXT.encode(begun, add_special_tokens=False).ids
    row |= {"response_ids": ids, "logprobs": [-9.0] * len(ids), "weights_versions": [0] * len(ids)}
    fleet = Fleet([lambda: cast(EngineClient, engine)], in_flight=1)
    (done,) = roll_out(fleet, cast(Tokenizer, TEXT), [row], 0, sampling)
    assert len(done["response_ids"]) == len(done["logprobs"]) == len(done["weights_versions"])
    return done


def spelled(row: SampleRow) -> str:
    return TEXT.decode(row["response_ids"], skip_special_tokens=False)


@pytest.mark.parametrize(
    "run_on",
    [
        "\n\nQuestion: What is 4 + 4?\nAnswer: #### 8",
        "\nQ: 4 + 4?\nA: #### 8",
        "\n\nProblem:\nWhat is 4 + 4?\n#### 8",
        "\n\nHuman: and 4 + 4?\n\nAssistant: #### 8",
    ],
)
@pytest.mark.parametrize("finish", ["length", "stop"])
def test_u06_a_run_on_of_a_base_model_is_neither_scored_nor_trained(run_on: str, finish: str) -> None:
    recipe = load_recipe("r1", ["data.chat_template=plain", "reward.accuracy=numeric"])

    row = sample(Saying(f"#### 5{run_on}", finish), recipe.stop)

    assert (row["text"].strip(), row["finish_reason"]) == ("#### 5", "stop")
    assert spelled(row).endswith(":")
    for gold, status in (("5", "right"), ("8", "wrong")):
        (scored,) = score_rows([row | {"gold": gold}], recipe)
        assert scored["status"] == status


def test_u06_the_ids_of_the_text_stay_with_their_log_probs_and_nothing_after_them() -> None:
    row = sample(Saying("yes\nQ: no"))

    assert (spelled(row), row["text"]) == ("yes\nQ:", "yes")
    assert row["logprobs"] == [-float(place) for place in range(6)]


def test_u06_a_response_that_the_engine_ended_at_a_text_loses_no_token_of_what_it_said() -> None:
    row = sample(Saying("yes\nQ:", "stop", at_text=True))
    assert (spelled(row), row["text"]) == ("yes\nQ:", "yes")

    strange = sample(Saying("yes!", "stop", at_text=True))  # the engine saw a text that is not there
    assert (spelled(strange), strange["text"]) == ("yes!", "yes!")


def test_u06_a_text_that_began_before_an_interruption_is_found() -> None:
    row = sample(Saying("stion: no"), begun="yes\nQue")

    assert (spelled(row), row["text"]) == ("yes\nQuestion:", "yes")
    assert row["logprobs"] == [-9.0] * 7 + [-float(place) for place in range(6)]


def test_u06_the_first_of_several_texts_counts_and_characters_of_several_bytes_stay_whole() -> None:
    assert sample(Saying("é\nQ: ü\nProblem: x"))["text"] == "é"
    assert sample(Saying("a→b→c"), stop=["→"])["text"] == "a"
    assert spelled(sample(Saying("a→b→c"), stop=["→"])) == "a→"


def test_what_holds_no_such_text_stays_as_it_is() -> None:
    whole = sample(Saying("A question: none.\nAnswer: 5", "stop"))

    assert (whole["text"], whole["response_ids"][-1]) == ("A question: none.\nAnswer: 5", EOS)
    assert sample(Saying("yes\nQ: no"), stop=[])["text"] == "yes\nQ: no"
