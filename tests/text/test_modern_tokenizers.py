"""Tokenizers of ModernBERT, EuroBERT and NeoBERT, made small: the ids and frames of `transformers`
in ten scripts.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from plmctl.text.tokenizer import Tokenizer
from tests.text.test_whole_words import SCRIPTS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
EURO = {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>", "mask": "<|mask|>"}
# name -> (special tokens by role, those around a text)
FRAMES = {
    "modernbert": (BERT, ("[CLS]", "[SEP]")),
    "eurobert": ({**EURO, "pad": "<|end_of_text|>"}, (EURO["bos"], EURO["eos"])),
    "neobert": (BERT, ("[CLS]", "[SEP]")),
}


def learn(name: str) -> Any:
    """A tokenizer of that family, trained on the scripts."""
    special, around = FRAMES[name]
    listed = list(dict.fromkeys(special.values()))
    if name == "neobert":
        own = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        own.normalizer = normalizers.BertNormalizer(lowercase=True)
        own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=400, special_tokens=listed)
    else:
        own = tokenizers.Tokenizer(models.BPE())
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "modernbert")
        split = pre_tokenizers.Split(Regex(LLAMA), behavior="isolated")
        own.pre_tokenizer = (
            plain if name == "modernbert" else pre_tokenizers.Sequence([split, plain])
        )
        own.normalizer = normalizers.NFC() if name == "modernbert" else None
        own.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet)
    own.train_from_iterator(SCRIPTS * 3, trainer)
    own.add_special_tokens(listed)
    first, last = around
    own.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(token, own.token_to_id(token)) for token in around],
    )
    names = {f"{role}_token": token for role, token in special.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, **names)


@pytest.mark.parametrize("name", FRAMES)
def test_ids_and_frames_in_ten_scripts(name: str, tmp_path: Path) -> None:
    theirs = learn(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = Tokenizer.load(tmp_path / "theirs")
    draw = random.Random(0)
    letters = [c for text in SCRIPTS[:-1] for c in text]
    mixed = ["".join(draw.choices(letters, k=draw.randint(1, 30))) for _ in range(200)]
    texts = [*SCRIPTS[:-1], *mixed]
    wanted = theirs(texts, add_special_tokens=False).input_ids
    assert ours.encode_batch(texts) == wanted
    special, (first, last) = FRAMES[name]
    assert {role: getattr(ours.roles, role) for role in special} == special
    assert [getattr(ours.roles, role, "A") for role in ours.roles.single] == [first, "A", last]
    assert [getattr(ours.roles, role, "A") for role in ours.roles.pair] == [
        *(first, "A", last, "A", last)
    ]
    ours.export_hf(tmp_path / "again", model_max_length=64)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again(texts).input_ids == theirs(texts).input_ids
    assert again("a", "b").input_ids == theirs("a", "b").input_ids
