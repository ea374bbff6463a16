# SPDX-License-Identifier: Apache-2.0
"""A long document, made up here, and questions about it."""
from typing import NamedTuple

WINDS = ("north", "east", "south-west", "west")
SHIPS = ("Amber Finch", "Blue Heron", "Copper Wren", "Grey Plover", "Little Tern")
GOODS = ("lemons", "lamp oil", "rope", "flour", "books", "window glass", "tea")
ROOMS = ("gallery", "lamp room", "boat house", "kitchen", "engine room", "stairs")
KEEPERS = ("Ines", "Marek", "Tove")

QUESTIONS = (
    "What is this log about? Answer in one sentence.",
    "Which keepers work at the lighthouse?",
    "List three ships that called at the island.",
    "What did the Amber Finch bring on day 1?",
    "Write a short letter from Ines to her sister about life at the lighthouse.",
    "Name four kinds of goods that were landed.",
    "Describe the weather in the log in two sentences.",
    "What do the keepers repair?",
    "Write a poem of four lines about the lighthouse.",
    "Which rooms does the lighthouse have?",
    "Tell the story of one day at the lighthouse in a paragraph.",
    "Why is a log kept at a lighthouse?",
)


class Size(NamedTuple):
    """How much the demonstration computes."""

    n_days: int
    n_tokens: int       # of an answer
    n_questions: int


LONG = Size(n_days=120, n_tokens=40, n_questions=len(QUESTIONS))
SHORT = Size(n_days=16, n_tokens=16, n_questions=7)


def day(number: int) -> str:
    return (f"Day {number}. Wind from the {WINDS[number * 3 % 4]}, {number * 7 % 31 + 3} knots. "
            f"The ship {SHIPS[number % 5]} landed {number * 11 % 40 + 2} crates of {GOODS[number * 5 % 7]}. "
            f"{KEEPERS[number * 2 % 3]} mended the {ROOMS[number * 5 % 6]}, "
            f"and the lamp burned {number % 5 + 9} hours.")


def document(n_days: int) -> str:
    return "The log of the lighthouse on Vared island.\n\n" + "\n".join(map(day, range(1, n_days + 1)))


def prompt(n_days: int, question: str) -> str:
    """The text of a conversation in the form that the demo's model was trained on."""
    return (f"<|im_start|>system\nYou answer questions about a document.<|im_end|>\n"
            f"<|im_start|>user\n{document(n_days)}\n\n{question}<|im_end|>\n<|im_start|>assistant\n")
