"""The trial of a tokenizer file of somebody else, a script in a process of its own. It imports
nothing of plmctl, so that it starts fast, and prints `{"problem": ...}` at its end.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator

import sentencepiece
import tokenizers

MEMORY, SECONDS = 4 << 30, 60  # bytes of addresses, of processor time
GROWTH, SPARE = 32, 1000  # the longest published normaliser makes 18 characters of one
LONG = 2000  # letters of one kind: what a regular expression without end stumbles over


def list_probes() -> Iterator[str]:
    """Texts of every character of the first plane, and long ones of few."""
    codes = [n for n in range(1, 1 << 16) if not 0xD800 <= n < 0xE000]
    for start in range(0, len(codes), 64):
        yield "".join(map(chr, codes[start : start + 64]))
    for letters in ("a", "A", " ", "1", ".", "a ", "ab", "-", "\n", "中", "é", "\u0301", "😀"):
        text = (letters * LONG)[:LONG]
        yield from (text, f"{text}!", f"!{text}\n")


def probe(encode: Callable[[str], object], normalise: Callable[[str], str]) -> str:
    """The problem of a tokenizer; "" for none."""
    for text in list_probes():
        longest = GROWTH * len(text) + SPARE
        if (length := len(normalise(text))) > longest:
            return f"its normaliser makes {length:,} characters of {len(text):,}"
        encode(text)
    return ""


def main(kind: str) -> str:
    """Load the content on standard input, and probe it."""
    content = sys.stdin.buffer.read()
    if kind == "json":
        try:
            made = tokenizers.Tokenizer.from_str(content.decode())
        except Exception:  # loading the file reports the fault; a panic is no Exception
            return ""
        made.no_truncation()
        made.no_padding()
        stage = made.normalizer
        return probe(made.encode, stage.normalize_str if stage else str)
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError:
        return ""
    return probe(model.encode, model.normalize)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        found = main(sys.argv[1])
    except BaseException as error:  # a panic of Rust is one
        found = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    sys.stdout.write(json.dumps({"problem": found}) + "\n")
