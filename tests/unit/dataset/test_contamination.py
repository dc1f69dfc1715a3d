import pytest

from tasks.dataset.contamination import drop_contaminated, gives_answer_away
from tasks.records.question import Question

TRAIN = "On Monday the train to the coast takes 95 minutes which is long"
OTHER = "Lena saves four euros a week and buys a book for nine"


def ask(name: str, *texts: str) -> list[Question]:
    return [Question(f"{name}:{i}", text, "1", name) for i, text in enumerate(texts, start=1)]


def kept_of(train: list[Question], held_out: list[Question], size: int | None = 8) -> list[str]:
    return [question.id for question in drop_contaminated(train, held_out, size)[0]]


def test_the_same_short_question_is_removed_and_reported():
    train = ask("train", "what is 2+2?", "What is 3+3?")
    kept, dropped = drop_contaminated(train, ask("eval", "What is  2+2 ?"), 8)
    assert [question.text for question in kept] == ["What is 3+3?"]
    assert [(hit.reason, hit.id, hit.detail) for hit in dropped] == [
        ("in the evaluation set", "train:1", "as eval:1: what is 2+2?")
    ]


def test_eight_words_in_a_row_are_a_hit_and_the_words_are_shown():
    # Shared: "the train to the coast takes 95 minutes", 8 words, in other case and punctuation.
    held_out = ask("eval", "Every spring, THE train to the coast takes 95 minutes. Why?")
    kept, dropped = drop_contaminated(ask("train", TRAIN, OTHER), held_out, 8)
    assert [question.id for question in kept] == ["train:2"]
    assert "`the train to the coast takes 95 minutes` is in eval:1" in dropped[0].detail


def test_seven_words_in_a_row_are_none():
    held_out = ask("eval", "Every spring the train to the coast takes 95 seconds")
    assert kept_of(ask("train", TRAIN), held_out) == ["train:1"]
    assert kept_of(ask("train", TRAIN), held_out, size=7) == []


def test_without_a_size_only_whole_questions_are_compared():
    held_out = ask("eval", "x " + TRAIN, OTHER)
    assert kept_of(ask("train", TRAIN, OTHER), held_out, size=None) == ["train:1"]


def test_an_instruction_around_the_questions_is_no_hit():
    def instruct(*texts: str) -> list[str]:
        before, after = (
            "Solve this math problem step by step with care: ",
            " Remember to put the answer on a line of its own.",
        )
        return [before + text + after for text in texts]

    primes = "why are there so few primes below 20, and how many exactly?"
    train = ask("train", *instruct(primes, "what is 3 to the power of 4?"))
    held_out = ask("eval", *instruct("which squares are below 90?", "what is seven times twelve?"))
    assert kept_of(train, held_out) == ["train:1", "train:2"]
    leaked = ask("eval", *instruct("which squares are below 90?", primes.replace("exactly", "are there")))
    assert kept_of(train, leaked) == ["train:2"]


@pytest.mark.parametrize(
    ("text", "gold", "leaks"),
    [
        ("What is 2+2? (answer: 4)", "4", True),
        ("What is 2+2? #### 4", "4", True),
        (r"What is 2+2? Hint: \boxed{4}", "4", True),
        ("A capital on the Seine, Paris or Rome?", "paris", True),
        # By chance: short golds are in many questions.
        ("How many of 4 cats are left of 4?", "4", False),
        ("What is 2+2? answer: 45", "4", False),
        ("The parisian metro", "Paris", False),
        ("anything", "", False),
        ("Is 1+1 (a*b)?", "a*b)?", True),
    ],
)
def test_a_gold_that_the_prompt_gives_away_is_noticed(text: str, gold: str, leaks: bool):
    assert gives_answer_away(Question("q", text, gold, "a")) == leaks


def test_a_gold_in_an_earlier_message_is_noticed_too():
    earlier = '[{"role": "system", "content": "The answer is 4"}]'
    assert gives_answer_away(Question("q", "What is 2+2?", "4", "a", earlier=earlier))
