"""Thinking tags, and whether a prompt ends within one: the response then goes on inside it."""

import re

_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "reason", "analysis", "scratchpad", "reflection")
TAGS = {
    **{f"<{name}>": f"</{name}>" for name in _NAMES},  # R1 and Qwen3 have the first
    "[THINK]": "[/THINK]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi
    "<seed:think>": "</seed:think>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command
    "<answer>": "</answer>",  # no thinking, but a prompt may begin the answer likewise
}
"""Closing tags by their opening ones."""

_TAG = re.compile("|".join(re.escape(tag) for pair in TAGS.items() for tag in pair))


def opened(prompt: str, asked: str = "") -> str:
    """Return the tag that a prompt leaves open, as it stands there; empty where it leaves none.

    With it in front, a response reads as if the model had said it all.

    Args:
        prompt: The prompt's text, as the chat template renders it, with its control tokens.
        asked: The last message in it. Only what the template adds after that counts: a question may speak of tags.
    """
    _, _, added = prompt.rpartition(asked.strip())
    within: list[str] = []
    for tag in _TAG.findall(added):
        if tag in TAGS:
            within.append(tag)
        elif within and TAGS[within[-1]] == tag:
            within.pop()
    return within[-1] if within else ""
