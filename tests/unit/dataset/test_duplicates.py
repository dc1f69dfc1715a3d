import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.dataset.duplicates import drop_near_repeated, drop_repeated, ngrams, words
from tasks.records.question import Question

FOX = "the quick brown fox jumps over the lazy dog near the old river bank"


def ask(*texts: str, earlier: str = "[]") -> list[Question]:
    return [Question(f"a:{i}", text, "1", "a", earlier=earlier) for i, text in enumerate(texts, start=1)]


def ids(questions: list[Question]) -> list[str]:
    return [question.id for question in questions]


def test_the_first_of_equal_questions_stays_and_the_others_are_told_of():
    kept, dropped = drop_repeated(ask("a b", "c", "A  B"))
    assert ids(kept) == ["a:1", "a:2"]
    assert [(finding.reason, finding.id, finding.detail) for finding in dropped] == [
        ("repeated", "a:3", "as a:1: A  B")
    ]


def test_the_same_text_in_another_conversation_is_another_question():
    kept, dropped = drop_repeated([*ask("and then?"), *ask("and then?", earlier='[{"role": "user", "content": "x"}]')])
    assert len(kept) == 2 and not dropped


def test_nearly_the_same_text_is_dropped_and_its_twin_named():
    kept, dropped = drop_near_repeated(ask(FOX, "something else entirely here", FOX + " today"), threshold=0.8)
    # 14 words have 12 triples, 15 words 13, of which 12 are shared: 12/13 = 0.92.
    assert ids(kept) == ["a:1", "a:2"]
    assert [(finding.reason, finding.id) for finding in dropped] == [("nearly repeated", "a:3")]
    assert dropped[0].detail.startswith("as a:1: ")


@pytest.mark.parametrize("number", range(30))
def test_below_the_threshold_nothing_is_dropped_though_sketches_may_look_alike(number: int):
    # 12 of 14 triples are shared, 0.86; the hashing takes some of these pairs for candidates all the same.
    kept, _ = drop_near_repeated(ask(FOX, f"{FOX} one{number} two{number}"), threshold=0.9)
    assert ids(kept) == ["a:1", "a:2"]


def test_short_texts_are_compared_whole():
    kept, _ = drop_near_repeated(ask("2+3", "2-3", "2+3"), threshold=0.5)
    assert ids(kept) == ["a:1", "a:2"]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text(alphabet="ab ", max_size=20), max_size=8), st.sampled_from([0.5, 0.8, 0.95]))
def test_near_duplicates_are_found_alike_every_time_and_nothing_is_lost(texts: list[str], threshold: float):
    kept, dropped = drop_near_repeated(ask(*texts), threshold)
    assert drop_near_repeated(ask(*texts), threshold) == (kept, dropped)
    assert sorted([*ids(kept), *(finding.id for finding in dropped)]) == sorted(ids(ask(*texts)))


def test_runs_of_words_ignore_case_and_punctuation():
    assert ngrams(words("What is 2+2, Ada?"), 3) == ["what is 2", "is 2 2", "2 2 ada"]
    assert ngrams(words("too short"), 3) == []
