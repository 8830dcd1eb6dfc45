"""Exported tokenizers name the published class, where it computes the same ids."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from plmctl.text.tokenizer import Tokenizer
from tests.text.test_numbered import TEXTS, train_pieces
from tests.text.test_shifted import draw_texts

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

V2 = {"pad": "PAD", "bos": "CLS", "eos": "SEP", "unk": "UNK"}  # the first ids
NLLB = {"extra_special_tokens": ["eng_Latn", "fra_Latn", "deu_Latn"]}


def from_pieces(name: str, kind: str, file: str, **settings: Any) -> Callable[[Path], Any]:
    """A published tokenizer of a sentencepiece model."""

    def make(folder: Path) -> Any:
        folder.mkdir()
        (folder / file).write_bytes(train_pieces(kind, 0))
        return getattr(transformers, name).from_pretrained(folder, **settings)

    return make


def make_bert(folder: Path) -> Any:
    letters = sorted({c for text in TEXTS for c in text if c.isalnum()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters[::2]]
    tokens += [f"##{c}" for c in letters]
    numbers = {token: n for n, token in enumerate(tokens)}
    return transformers.BertTokenizer(vocab=numbers, do_lower_case=False)


def make_deberta(folder: Path) -> Any:
    """[PAD] [CLS] [SEP] [UNK] are the first tokens of the published vocabulary."""
    own = read_json(folder)["model"]
    tokens = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *own["vocab"], "[MASK]"]
    numbers = {token: n for n, token in enumerate(tokens)}
    return transformers.DebertaTokenizer(vocab=numbers, merges=list(map(tuple, own["merges"])))


def learn_pieces(folder: Path, **settings: Any) -> None:
    folder.mkdir()
    out = io.BytesIO()
    some: Any = {"vocab_size": 900, "character_coverage": 0.98, "minloglevel": 9, **settings}
    train = sentencepiece.SentencePieceTrainer.train
    train(sentence_iterator=iter(TEXTS), model_writer=out, **some)
    (folder / "spiece.model").write_bytes(out.getvalue())


def make_pegasus(folder: Path) -> Any:
    learn_pieces(folder, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return transformers.PegasusTokenizer.from_pretrained(folder)


def make_fnet(folder: Path) -> Any:
    """The stages of the published file, which version 5 takes over; from the pieces alone it
    leaves out the space before a text.
    """
    learn_pieces(folder, pad_id=3, control_symbols=["[CLS]", "[SEP]", "[MASK]"])
    transformers.FNetTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "spiece.model").unlink()
    file = folder / "tokenizer.json"
    stated = json.loads(file.read_text(encoding="utf-8"))
    replace = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    stated["normalizer"]["normalizers"][1] = replace
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    stated |= {"pre_tokenizer": space, "decoder": space}
    file.write_text(json.dumps(stated), encoding="utf-8")
    return transformers.FNetTokenizer.from_pretrained(folder)


def make_deberta_v2(folder: Path) -> Any:
    folder.mkdir()
    out = io.BytesIO()
    names = {f"{name}_piece": f"[{token}]" for name, token in V2.items()}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=out,
        vocab_size=900,
        character_coverage=0.98,
        minloglevel=9,
        **{f"{name}_id": n for n, name in enumerate(V2)},
        **names,
    )
    (folder / "spm.model").write_bytes(out.getvalue())
    return transformers.DebertaV2Tokenizer.from_pretrained(folder)


def learn_bytes(special: str) -> Tokenizer:
    return Tokenizer.train(TEXTS[:300], kind="byte_bpe", vocab_size=400, specials=special)


def read_json(folder: Path) -> Any:
    """The tokenizer.json of our own byte-level tokenizer."""
    learn_bytes("gpt2").export_hf(folder, model_max_length=64)
    return json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))


def from_bytes(name: str, special: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        learn_bytes(special).export_hf(folder, model_max_length=64)
        return getattr(transformers, name).from_pretrained(folder)

    return make


SPM = "sentencepiece.bpe.model"
PUBLISHED: dict[str, Callable[[Path], Any]] = {
    "BertTokenizer": make_bert,
    "RobertaTokenizer": from_bytes("RobertaTokenizer", "roberta"),
    "GPT2Tokenizer": from_bytes("GPT2Tokenizer", "gpt2"),
    "DebertaTokenizer": make_deberta,
    "DebertaV2Tokenizer": make_deberta_v2,
    "PegasusTokenizer": make_pegasus,
    "FNetTokenizer": make_fnet,
    "XLMRobertaTokenizer": from_pieces("XLMRobertaTokenizer", "unigram", SPM),
    "CamembertTokenizer": from_pieces("CamembertTokenizer", "unigram", SPM),
    "MBartTokenizer": from_pieces("MBartTokenizer", "unigram", SPM, src_lang="ro_RO"),
    "MBart50Tokenizer": from_pieces("MBart50Tokenizer", "unigram", SPM, src_lang="uk_UA"),
    "NllbTokenizer": from_pieces("NllbTokenizer", "bpe", SPM, src_lang="fra_Latn", **NLLB),
}
TARGETS = {"MBartTokenizer": "de_DE", "MBart50Tokenizer": "xh_ZA", "NllbTokenizer": "deu_Latn"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_class_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    theirs = PUBLISHED[name](tmp_path / "files")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = Tokenizer.load(tmp_path / "theirs")
    wanted = theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert ours.encode_batch(TEXTS) == wanted
    ours.save(tmp_path / "saved")
    Tokenizer.load(tmp_path / "saved").export_hf(tmp_path / "out", model_max_length=64)
    stated = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
    assert stated["tokenizer_class"] == name
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(again) is type(theirs)
    assert again(TEXTS)["input_ids"] == theirs(TEXTS)["input_ids"]
    pairs = [one(TEXTS[:99], TEXTS[99:198])["input_ids"] for one in (again, theirs)]
    assert pairs[0] == pairs[1]
    assert len(again) == len(theirs)
    if language := TARGETS.get(name):
        again.tgt_lang = theirs.tgt_lang = language
        rows = [one(text_target=TEXTS)["input_ids"] for one in (again, theirs)]
        assert rows[0] == rows[1] != theirs(TEXTS)["input_ids"]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece", "byte_bpe", "char"])
def test_a_tokenizer_of_our_own_keeps_its_ids(kind: str, tmp_path: Path) -> None:
    """Whatever class it names."""
    texts = draw_texts(300, 7)
    size = {} if kind == "char" else {"vocab_size": 870}
    ours = Tokenizer.train(texts, kind=kind, **size)
    ours.export_hf(tmp_path / "out", model_max_length=64)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again(texts, add_special_tokens=False)["input_ids"] == ours.encode_batch(texts)
    assert len(again) == ours.vocab.size


@pytest.mark.parametrize("legacy", [True, False])
def test_the_place_of_nllbs_language_is_that_of_its_setting(legacy: bool, tmp_path: Path) -> None:
    """Old files have another template in their tokenizer.json, which the class overrides."""
    make = from_pieces("NllbTokenizer", "bpe", SPM, **NLLB, legacy_behaviour=not legacy)
    make(tmp_path / "files").save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "tokenizer_config.json"
    stated = json.loads(file.read_text()) | {"legacy_behaviour": legacy, "tgt_lang": "deu_Latn"}
    file.write_text(json.dumps(stated))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ours = Tokenizer.load(tmp_path / "theirs")
    sides = (ours.vocab.single, {"text": TEXTS[0]}), (ours.vocab.target, {"text_target": TEXTS[0]})
    for order, given in sides:
        ids = [ours.encode(TEXTS[0]) if n == "A" else [ours.vocab.id(n)] for n in order]
        assert [n for part in ids for n in part] == theirs(**given)["input_ids"]
    ours.export_hf(tmp_path / "out", model_max_length=64)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for given in ({"text": TEXTS[0]}, {"text_target": TEXTS[0]}):
        assert again(**given)["input_ids"] == theirs(**given)["input_ids"]


@pytest.mark.parametrize(("name", "languages"), [("mbart", 25), ("mbart50", 52), ("nllb", 202)])
def test_languages_stand_behind_the_pieces_of_a_bare_model(
    name: str, languages: int, tmp_path: Path
) -> None:
    """`<s> <pad> </s> <unk>`, the pieces, the languages, `<mask>`: the released layout."""
    kind = "bpe" if name == "nllb" else "unigram"
    (tmp_path / SPM).write_bytes(train_pieces(kind, 0))
    stated = {"mbart": "MBartTokenizer", "mbart50": "MBart50Tokenizer", "nllb": "NllbTokenizer"}
    named = {"tokenizer_class": stated[name]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    ours = Tokenizer.load(tmp_path)
    assert ours.vocab.tokens[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert ours.vocab.mask == ours.vocab.size - 1 == 4 + 900 - 3 + languages
    default = "eng_Latn" if name == "nllb" else "en_XX"
    first = "ace_Arab" if name == "nllb" else "ar_AR"
    assert ours.vocab.find(first) == 4 + 900 - 3
    if name != "nllb":  # transformers 5 puts NLLB's mask before the languages
        theirs = getattr(transformers, stated[name]).from_pretrained(tmp_path)
        assert [theirs.convert_tokens_to_ids(t) for t in ours.vocab.tokens] == [
            *range(ours.vocab.size)
        ]
    before = name != "mbart"
    order = (default, "A", "eos") if before else ("A", "eos", default)
    assert ours.vocab.single == order
    assert ours.vocab.special[ours.vocab.find(default)]
