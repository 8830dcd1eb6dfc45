"""minicons' side of minimal_pairs.py, which starts this script where `minicons` is installed.

python benchmarks/peer_minimal_pairs.py exported/ texts.json out.json --way masks --threads 2
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

METRICS = {"masks": "original", "words": "within_word_l2r"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--way", choices=[*METRICS, "next"], required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()

    import torch
    from minicons import scorer

    torch.set_num_threads(given.threads)
    texts = json.loads(given.texts.read_text(encoding="utf-8"))

    def total(values: Any) -> float:
        return float(values.double().sum())

    masked = given.way in METRICS
    kind = scorer.MaskedLMScorer if masked else scorer.IncrementalLMScorer
    model = kind(given.model, "cpu")
    if not hasattr(model.tokenizer, "batch_encode_plus"):  # its name before transformers 5
        type(model.tokenizer).batch_encode_plus = type(model.tokenizer).__call__
    how = {"PLL_metric": METRICS[given.way]} if masked else {"bos_token": True}
    scores: list[float] = []
    started = time.perf_counter()
    for start in range(0, len(texts), given.batch):
        some = texts[start : start + given.batch]
        scores += model.sequence_score(some, reduction=total, **how)
    seconds = time.perf_counter() - started
    given.out.write_text(json.dumps({"scores": scores, "seconds": seconds}), encoding="utf-8")


if __name__ == "__main__":
    main()
