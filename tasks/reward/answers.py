r"""Which part of a text is its answer: one reader for golds and responses, used by every kind of reward.

Where the answer of a response stands. The first line that applies decides:

| the response | its answer |
|---|---|
| a thought that never ends, one that the prompt opened too | none |
| `…</think>` and more | only what follows counts |
| `<answer>18 dollars</answer>` | what stands in the last such tags |
| `\boxed{18}`, `\fbox{18}`, `\boxed 7` | what stands in the last box |
| `$x=\boxed{-2}$ and $x=\boxed{1}$`, `\boxed{1}\boxed{2}` | side by side they are one answer: the list `-2, 1` |
| tags or a box that are empty or not closed | none, whatever stands before |
| it was cut at the length limit | none: its end is missing |
| `#### 18` | the line behind the last such sign |
| `Answer: 18`, `The answer is 18.` | the sentence behind the last such words |
| anything else | its last statement |

What a place says is told in `statements`, how a number is read in `numbers`, what is equal in `equality`.
Nothing is taken out of a larger term: the 2 of `40 cm^2`, `x2`, `\frac{1}{2}` or `0/2` is never an answer.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.records.thinking import TAGS
from tasks.reward.notation import normalise, up_to_closing_brace
from tasks.reward.statements import BOLD, LONGEST, expression_of, last_expression, whole_expression

THINKING = {opening: closing for opening, closing in TAGS.items() if opening != "<answer>"}

_THOUGHT = re.compile("|".join(re.escape(tag) for pair in THINKING.items() for tag in pair))

# Boxes that are looked at, and characters between two that stand side by side.
_MOST_BOXES = 50
_BESIDE_EACH_OTHER = 100

_TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*(?:\{|([^\s{}$\\]))")
_BESIDE = re.compile(
    r"(?:\s|[$,;.&]|\\[()\[\],;:!> ]|\\q?quad|\\text\{\s*(?:and|or)\s*\}|\b(?:and|or)\b|[A-Za-z](?:_\{?\w\}?)?\s*=)*"
)
_MARK = re.compile(r"####[ \t]*(.*)")
# `The answer to this is`, `Final answer:`, `answer =`
_LABEL = re.compile(
    r"\banswers?\b(?:[^.:=\n]{0,80}?\b(?:is|are|be)\b"
    r"(?![ \t]+(?:not|as|the following|correct|right|wrong|clear)\b)|(?=[ \t]*[:=\uff1a]))[ \t]*[:=\uff1a]?",
    re.IGNORECASE,
)
# What a chat template writes when the turn is over; a policy may go on behind it.
_TURN_ENDS = re.compile(r"<\|(?:im_start|im_end|endoftext|end_of_text|eot_id|eom_id|start_header_id|end|user)\|>|</s>")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


@dataclass(frozen=True)
class Answer:
    """What a text gives as its answer.

    Attributes:
        text: The place of the answer as it stands: a box's content, the line behind a mark, the whole text.
        expression: What this place says, in the notation of `notation.normalise`; see `statements`.
    """

    text: str
    expression: str


def final_part(said: str) -> str | None:
    """Return what follows the thinking; None where the thinking isn't closed.

    Args:
        said: The response, behind the tag that its prompt left open.
    """
    text = _TURN_ENDS.split(said, maxsplit=1)[0]
    start, within = 0, set[str]()
    for tag in _THOUGHT.finditer(text):
        if tag.group() in THINKING:
            within.add(THINKING[tag.group()])
        elif not within or tag.group() in within:
            within.discard(tag.group())
            start = tag.end()
    return None if within else text[start:]


def find_answer(said: str, cut: bool = False) -> Answer | None:
    """Return the response's one answer, by the table above; None where it gives none.

    Args:
        said: The response, behind the tag that its prompt left open. The rest of the prompt is not part of it.
        cut: It ended at the length limit.
    """
    final = final_part(said)
    if final is None:
        return None
    enclosed = _last_enclosed(final)
    if enclosed is not None:
        return read_answer(enclosed) if enclosed else None
    if cut:
        return None
    marked = _after_mark(final)
    place = final.strip() if marked is None else marked
    expression = (last_expression(place) if marked is None else expression_of(place, begins=True)) if place else ""
    return Answer(place, expression) if expression else None


def read_answer(text: str) -> Answer:
    """Return what a text says that is an answer and nothing else: a gold, or what stands in a box or tags."""
    inner = _last_enclosed(text) or text
    if len(inner) > LONGEST:
        return Answer(inner, inner)
    marked = _after_mark(_TEXT.sub(r"\1", inner))
    return Answer(inner, whole_expression(inner if marked is None else marked))


def boxed_answer(solution: str) -> str | None:
    r"""Return what stands in the last box of a solution in LaTeX, or in several side by side; None without a box."""
    return _side_by_side(solution, list(_boxes(solution))) or None


def _last_enclosed(text: str) -> str | None:
    """Return the content of the last tags or box: empty where that isn't closed, None where there is neither."""
    content = None
    if "<answer>" in text:
        if "</answer>" not in text.rpartition("<answer>")[2]:
            return ""
        found = [(tags.start(), tags.end(), tags[1].rpartition("<answer>")[2].strip()) for tags in _TAGS.finditer(text)]
        text = content = _side_by_side(text, found)
    if "box" in text and _BOX.search(text):
        content = _side_by_side(text, list(_boxes(text)))
    return content


def _boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and content of each box that isn't within another one."""
    end = 0
    for box in list(_BOX.finditer(text))[-_MOST_BOXES:]:
        if box.start() < end:
            continue
        if box[1] is not None:
            token = re.match(r"[^\s$\\]+", text[box.start(1) :])
            content = token.group().rstrip(".,;") if token else ""
            end = box.start(1) + len(content)
        else:
            content = up_to_closing_brace(text[box.end() :])
            end = box.end() + len(content) + 1
        yield box.start(), end, content.strip()


def _side_by_side(text: str, found: Sequence[tuple[int, int, str]]) -> str:
    """Return the last content, with those directly before it as a list. One that is empty makes the answer empty."""
    if not found:
        return ""
    contents = [found[-1][2]]
    for (_, end, content), (start, _, _) in zip(reversed(found[:-1]), reversed(found[1:]), strict=True):
        if start - end > _BESIDE_EACH_OTHER or not _BESIDE.fullmatch(text[end:start]):
            break
        if normalise(content) not in map(normalise, contents):
            contents.insert(0, content)
    return ", ".join(contents) if all(contents) else ""


def _after_mark(text: str) -> str | None:
    """Return the line behind the last mark or label; None without one."""
    if marks := _MARK.findall(text):
        return marks[-1].strip()
    if "nswer" not in text and "NSWER" not in text:
        return None
    text = BOLD.sub(r"\2", text[-LONGEST:])
    if not (labels := list(_LABEL.finditer(text))):
        return None
    rest = text[labels[-1].end() :].lstrip(" \t\n*:")
    opened = re.match(r"\$\$|\\\[", rest)
    if opened and (closed := rest.find({"$$": "$$", r"\[": r"\]"}[opened.group()], 2)) > 0:
        return rest[: closed + 2].replace("\n", " ") + rest[closed + 2 :].partition("\n")[0]
    return rest.partition("\n")[0].strip()
