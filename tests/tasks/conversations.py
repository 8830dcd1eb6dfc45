"""Conversations about texts, in the layouts of CoQA and QuAC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SAID = ("no", "unknown", "yes")


def make_coqa(texts: Sequence[str]) -> dict[str, Any]:
    """Four questions about each text: its second and third word, no, unknown and yes."""
    return {"version": "1.0", "data": [_tell(n, text) for n, text in enumerate(texts)]}


def _tell(number: int, text: str) -> dict[str, Any]:
    start, words = text.index(" ") + 1, " ".join(text.split()[1:3])
    span = {"span_start": start, "span_end": start + len(words), "span_text": words}
    none = {"span_start": -1, "span_end": -1, "span_text": "unknown"}
    answers = [{**span, "input_text": words.upper(), "turn_id": 1}]
    for turn, said in enumerate(SAID, 2):
        place = none if said == "unknown" else span
        answers.append({**place, "input_text": said, "turn_id": turn})
    questions = [{"input_text": f"Is it question {n}?", "turn_id": n} for n in range(1, 5)]
    further = [{"input_text": said, "turn_id": n} for n, said in enumerate(("it", *SAID), 1)]
    return {
        "id": f"story{number}",
        "source": ("wikipedia", "cnn")[number % 2],
        "story": text,
        "questions": questions,
        "answers": answers,
        "additional_answers": {"0": further, "1": further},
    }


def make_quac(texts: Sequence[str]) -> dict[str, Any]:
    """Two questions about each text: its second and third word, and one that has no answer."""
    return {"data": [{"paragraphs": [_teach(n, text)]} for n, text in enumerate(texts)]}


def _teach(number: int, text: str) -> dict[str, Any]:
    words = " ".join(text.split()[1:3])
    context = f"{text} CANNOTANSWER"
    found = []
    for turn, said in enumerate((words, "CANNOTANSWER")):
        answer = {"text": said, "answer_start": context.index(said)}
        found.append(
            {
                "id": f"C_{number}_q#{turn}",
                "question": f"Is it question {turn}?",
                "answers": [answer, answer],
                "orig_answer": answer,
                "yesno": "yx"[turn],
                "followup": "mn"[turn],
            }
        )
    return {"id": f"C_{number}", "context": context, "qas": found}
