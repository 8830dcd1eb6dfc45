"""Tokenizers in Hugging Face folders, read and written without `transformers`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from plmctl.core.errors import DataError
from plmctl.core.values import Rule, Whole
from plmctl.storage.atomic import write_bytes, write_text
from plmctl.storage.gate import admit
from plmctl.storage.reading import read_bytes, read_json, read_text
from plmctl.text import numbered_files, roles, shifted, stripped, whole_words
from plmctl.text.added import AGAIN, Details, read_added_tokens
from plmctl.text.backend import Backend
from plmctl.text.fairseq_words import HOME, IDS, MERGES, WORDS, renumber
from plmctl.text.languages import name_languages
from plmctl.text.published_class import ANY, name_class
from plmctl.text.roles import NAMES, SEGMENTS, Roles, order_appended, sort_numbered
from plmctl.text.rust import SEGMENTED, Rust, blame_tokenizer, finish
from plmctl.text.sentence_piece import GIVEN, SentencePiece, convert_to_rust
from plmctl.text.shifted import find_shift
from plmctl.text.stripped import find_family
from plmctl.text.whole_words import WholeWordBackend

_MODELS = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "sentencepiece.model")
# files of sentence-transformers with its settings of texts
LIMITS = (
    "sentence_bert_config.json",
    *(f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert")),
    *(f"sentence_{kind}_config.json" for kind in ("xlm-roberta", "xlnet")),
)
_OF_GOOGLE = "30k-clean.model"  # the vocabulary of ALBERT in TensorFlow
# a program that writes the tokenizer.json of the folder that it is called with
_REWRITE = (
    "import sys; from transformers import AutoTokenizer as T;"
    " T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])"
)
_CODE = "auto_map names code of its own, which plmctl never runs"
# Spellings by role, tried in this order where no file names the special tokens.
_SPELLINGS = {
    "pad": ("[PAD]", "<pad>", "<|padding|>", "<|endoftext|>", "</s>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("[CLS]", "<s>", "<|endoftext|>"),
    "eos": ("[SEP]", "</s>", "<|endoftext|>"),
}
# Families whose vocabulary has a second set of special tokens: the set in use.
# DeBERTa's sentencepiece model has no [MASK]: its class adds it behind the last piece.
# Funnel's tokens are spelled as XLNet's.
_NAMED = {
    "mpnet": {**vars(roles.ROBERTA), "unk": "[UNK]"},
    "deberta-v2": vars(roles.BERT),
    "funnel": {**vars(roles.XLNET), "eos": "</s>"},
}


class _Spelled(TypedDict):
    content: str


_Token = _Spelled | str


class _Config(TypedDict):
    """The parts of tokenizer_config.json and special_tokens_map.json that are read."""

    pad_token: NotRequired[_Token | None]
    unk_token: NotRequired[_Token | None]
    cls_token: NotRequired[_Token | None]
    sep_token: NotRequired[_Token | None]
    mask_token: NotRequired[_Token | None]
    bos_token: NotRequired[_Token | None]
    eos_token: NotRequired[_Token | None]
    additional_special_tokens: NotRequired[list[_Token] | None]
    extra_special_tokens: NotRequired[list[_Token] | dict[str, _Token] | None]
    tokenizer_class: NotRequired[str | None]
    extra_ids: NotRequired[Annotated[int, Rule(lambda n: 0 <= n <= 10_000, "between 0 and 10000")]]
    do_lower_case: NotRequired[bool | None]
    do_lowercase: NotRequired[bool | None]
    do_lowercase_and_remove_accent: NotRequired[bool | None]
    split_by_punct: NotRequired[bool | None]
    strip_accents: NotRequired[bool | None]
    tokenize_chinese_chars: NotRequired[bool]
    added_tokens_decoder: NotRequired[dict[str, Details] | None]
    add_prefix_space: NotRequired[bool | None]
    auto_map: NotRequired[dict[str, Any] | None]
    src_lang: NotRequired[str | None]
    tgt_lang: NotRequired[str | None]
    legacy_behaviour: NotRequired[bool | None]
    language_codes: NotRequired[str | None]
    separate_vocabs: NotRequired[bool | None]


def read(path: Path) -> tuple[Backend, Roles, str]:
    """Read the tokenizer of a Hugging Face folder, or of one of its files.

    Returns:
        The backend, the roles of its special tokens, and its kind.

    Raises:
        DataError: The folder has no tokenizer, or one that needs missing files.
    """
    folder = path.parent if path.is_file() else path
    files = {file.name: file for file in ([path] if path.is_file() else sorted(folder.iterdir()))}
    config = {
        **_name_by_family(folder),
        **_json(folder / "special_tokens_map.json"),
        **_json(folder / "tokenizer_config.json"),
    }
    model = next(
        (
            files[name]
            for name in (*_MODELS, *(n for n in files if n.endswith((".spm", ".model"))))
            if name in files
        ),
        None,
    )
    named = [_spelling(config, name) for name in NAMES] + _list_further(config)
    added = read_added_tokens(folder, config, set(filter(None, named)))
    backend: Rust | SentencePiece
    if _cuts_words(folder, config):
        vocab_file = files.get("vocab.txt") or files.get("tokenizer.json")
        return _from_whole_words(vocab_file, config, path)
    if "tokenizer.json" in files:
        backend = Rust.read(read_bytes(files["tokenizer.json"], fix=AGAIN), files["tokenizer.json"])
        kind = backend.kind
    elif parts := numbered_files.find_parts(files, model, config, _read_type(folder)):
        numbered, special = numbered_files.read(
            parts, config, added, folder, _json(folder / "config.json")
        )
        return numbered, special, numbered.kind
    elif "vocab.txt" in files:
        backend, kind = _from_vocab_txt(files["vocab.txt"], config), "wordpiece"
    elif "vocab.json" in files and "merges.txt" in files:
        numbers = read_json(files["vocab.json"], dict[str, Whole], fix=AGAIN)
        backend, kind = _from_merges(numbers, files["merges.txt"], config), "byte_bpe"
    elif {WORDS, IDS, MERGES} <= files.keys():
        lines = read_text(files[WORDS], fix=AGAIN).split("\n")
        ids = read_json(files[IDS], dict[str, Whole], fix=AGAIN)
        numbers = renumber(lines, ids, files[WORDS])
        backend, kind = _from_merges(numbers, files[MERGES], config), "byte_bpe"
    elif model is not None:
        bare = _from_model(model, config, added)
        backend, kind = bare, bare.kind
    else:
        needed = "tokenizer.json, vocab.txt, vocab.json with merges.txt, or a sentencepiece *.model"
        code = f"; {_CODE} ({', '.join(coded)})" if (coded := _list_code(config)) else ""
        raise DataError(
            f"no tokenizer here: looked for {needed}{code}", file=path, fix=_find_fix(files, folder)
        )
    whole = _with_added(backend, added, folder, config)
    special = _roles(whole, config, path)
    return whole, name_languages(_add_templates(whole, special), config, whole.tokens), kind


def write(
    folder: Path,
    backend: Backend,
    special: Roles,
    kind: str,
    model_max_length: int,
    *,
    framed: bool,
    segments: bool,
) -> None:
    """Write tokenizer.json and tokenizer_config.json, and vocab.txt or vocab.json and merges.txt
    where the family has them.

    Args:
        framed: put special tokens around a text even where the family leaves that to its users
            (GPT-2).
        segments: Whether the model tells the texts of a pair apart, whatever its tokens are.
            Others do not expect token_type_ids: XLM and GPT-2 add vectors of tokens for them.
    """
    admit(folder).mkdir(parents=True, exist_ok=True)
    exported = backend if isinstance(backend, Rust) else _twin(backend, special)
    numbered = segments and special.sep not in SEGMENTED  # by no class of its family
    if framed or numbered:
        copy = tokenizers.Tokenizer.from_str(exported.tokenizer.to_str())
        exported = Rust(finish(copy, special, framed=framed, segments=segments or None))
    write_bytes(folder / "tokenizer.json", exported.files()["tokenizer.json"])
    model = exported.spec["model"]
    if kind == "wordpiece":
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in exported.tokens))
    if kind == "byte_bpe":
        write_text(folder / "vocab.json", json.dumps(model["vocab"], ensure_ascii=False))
        merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
        write_text(folder / "merges.txt", "#version: 0.2\n" + merges)
    names: dict[str, Any] = {
        f"{name}_token": getattr(special, name) for name in NAMES if getattr(special, name)
    }
    if special.further:
        names["additional_special_tokens"] = list(special.further)
    typed = ["token_type_ids"] if segments else []
    config: dict[str, Any] = {
        "tokenizer_class": ANY,
        "model_max_length": model_max_length,
        **names,
        **({} if numbered else name_class(exported.spec, special, exported.tokens)),
        "model_input_names": ["input_ids", *typed, "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    rules = exported.spec["normalizer"] or {}
    if rules.get("type") == "BertNormalizer":
        config["do_lower_case"] = rules["lowercase"]
        config["tokenize_chinese_chars"] = rules["handle_chinese_chars"]
        if rules["strip_accents"] is not None:
            config["strip_accents"] = rules["strip_accents"]
    if kind == "byte_bpe":
        config["add_prefix_space"] = bool(exported.spec["pre_tokenizer"].get("add_prefix_space"))
    write_text(
        folder / "tokenizer_config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    )


def _with_added(
    backend: Rust | SentencePiece,
    added: Sequence[dict[str, Any]],
    folder: Path,
    config: dict[str, Any],
) -> Backend:
    """`backend` with the tokens that the folder adds to its vocabulary, at the ids it gives them;
    in lower case where sentence-transformers lowers the texts of this folder.

    Raises:
        DataError: The folder gives such an id to another token too.
    """
    numbers = {token: number for number, token in enumerate(backend.tokens)}
    added = [
        *added,
        *_number_further(
            config,
            {*numbers, *(t["content"] for t in added)},
            max([len(numbers) - 1, *(token["id"] for token in added)]) + 1,
        ),
    ]
    kept = _roles_among({*numbers, *(token["content"] for token in added)}, config).tokens
    missing = [token for token in added if numbers.get(token["content"]) != token["id"]]
    lower = _json(find_limits(folder)).get("do_lower_case")
    if isinstance(backend, SentencePiece):
        if not missing and not lower:
            return backend
        backend = convert_to_rust(backend, _roles_among(set(numbers), config))
    if lower:
        backend = backend.lowered()
    listed = {token["content"] for token in backend.spec["added_tokens"]}
    spelled = set(backend.added).difference(kept)
    if not spelled and not missing and listed.issuperset(token["content"] for token in added):
        return backend
    with blame_tokenizer(folder):
        return backend.with_tokens(added, kept=kept)


def find_limits(folder: Path) -> Path:
    """The file of `LIMITS` that a folder has; without any, the first name."""
    return next((folder / name for name in LIMITS if (folder / name).is_file()), folder / LIMITS[0])


def _number_further(
    config: dict[str, Any], known: Collection[str], first: int
) -> list[dict[str, Any]]:
    """The mask and further special tokens to which no file gives an id. They take the next ids,
    from `first` on, in this order.
    """
    new = [token for token in dict.fromkeys(_list_appended(config)) if token not in known]
    return [{"id": first + n, "content": token, "special": True} for n, token in enumerate(new)]


def _from_vocab_txt(file: Path, config: dict[str, Any]) -> Rust:
    tokens = read_text(file, fix=AGAIN).removesuffix("\n").split("\n")
    vocab = {token: number for number, token in enumerate(tokens)}
    unknown = _spelling(config, "unk") or "[UNK]"
    if unknown not in vocab:
        problem = f"no {unknown} among its {len(tokens)} lines"
        raise DataError(problem, file=file, fix="give the vocab.txt of a BERT tokenizer")
    # Without a config: a vocabulary that has no capital letter can only be an uncased one.
    uncased = not any(token[:1].isascii() and token[:1].isupper() for token in tokens)
    tokenizer = tokenizers.Tokenizer(
        models.WordPiece(vocab, unk_token=unknown, max_input_chars_per_word=100)
    )
    lower, strip = config.get("do_lower_case"), config.get("strip_accents")
    if lower is None and strip is None and _has_marks(tokens):
        strip = False  # tokens with accents would match no stripped text
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=uncased if lower is None else lower,
        strip_accents=strip,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return Rust(_add_special(tokenizer, config))


def _cuts_words(folder: Path, config: dict[str, Any]) -> bool:
    """Whether the tokenizer is RoFormer's, which no tokenizer.json can state."""
    named = config.get("tokenizer_class")
    if named is not None:
        return named in whole_words.CLASSES
    return bool(_read_type(folder) == "roformer")


def _from_whole_words(
    file: Path | None, config: dict[str, Any], path: Path
) -> tuple[Backend, Roles, str]:
    if file is None:
        fix = "download the whole model folder"
        raise DataError("no tokenizer here: looked for vocab.txt", file=path, fix=fix)
    if file.name == "vocab.txt":
        tokens = read_text(file, fix=AGAIN).removesuffix("\n").split("\n")
        vocab = {token: number for number, token in enumerate(tokens)}
    else:
        known = Rust.read(read_bytes(file, fix=AGAIN), file)
        vocab = {token: number for number, token in enumerate(known.tokens)}
    unknown = _spelling(config, "unk") or "[UNK]"
    with blame_tokenizer(file):
        inner = whole_words.read(vocab, config, unknown)
    special = _roles_among(set(vocab), config)
    return WholeWordBackend(Rust(finish(inner.tokenizer, special))), special, "wordpiece"


def write_whole_words(folder: Path, inner: Rust, special: Roles, model_max_length: int) -> None:
    """Write the files of RoFormer's tokenizer. Its tokenizer.json cannot state how words are cut:
    the class does, and puts BERT's rule there.
    """
    admit(folder).mkdir(parents=True, exist_ok=True)
    write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in inner.tokens))
    spec = {**inner.spec, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    write_text(folder / "tokenizer.json", json.dumps(spec, ensure_ascii=False))
    rules = inner.spec["normalizer"]
    config = {
        "tokenizer_class": whole_words.CLASSES[0],
        "model_max_length": model_max_length,
        **{f"{name}_token": getattr(special, name) for name in NAMES if getattr(special, name)},
        "do_lower_case": rules["lowercase"],
        "strip_accents": rules["strip_accents"],
    }
    write_text(
        folder / "tokenizer_config.json", json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    )


def _has_marks(tokens: Sequence[str]) -> bool:
    """Whether several tokens have letters that would lose their marks, or fall apart."""
    others = (token for token in tokens if not token.isascii())
    return sum(normalizers.NFD().normalize_str(token) != token for token in others) > 2


def _from_merges(vocab: dict[str, int], merges_file: Path, config: dict[str, Any]) -> Rust:
    lines = read_text(merges_file, fix=AGAIN).split("\n")
    merges = [
        (pair[0], pair[1])
        for line in lines
        if not line.startswith("#version") and len(pair := line.split(" ")) == 2
    ]
    with blame_tokenizer(merges_file):
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=bool(config.get("add_prefix_space"))
    )
    tokenizer.decoder = decoders.ByteLevel()
    return Rust(_add_special(tokenizer, config))


def _from_model(
    file: Path, config: dict[str, Any], added: Sequence[dict[str, Any]]
) -> SentencePiece | Rust:
    plain = SentencePiece(read_bytes(file, fix=AGAIN))
    family = find_family(plain.tokens) if file.name in (GIVEN, _OF_GOOGLE) else None
    if family is not None:
        return stripped.read(plain, family, config)
    kind = _read_type(file.parent)
    shift = find_shift(config.get("tokenizer_class"), kind)
    if file.name == "sentencepiece.bpe.model" and shift is not None:
        return shifted.read(plain, shift)
    changed = config.get("do_lower_case") or config.get("split_by_punct")
    if file.name == "sentencepiece.bpe.model" or changed:
        why = "its ids are shifted, or its text is changed, by code outside the sentencepiece model"
        fix = f"python -c '{_REWRITE}' {shlex.quote(str(file.parent))}"
        raise DataError(f"this tokenizer needs its tokenizer.json: {why}", file=file, fix=fix)
    listed = [*_list_further(config), *(token["content"] for token in added)]
    t5 = "t5" in (kind, str(config.get("tokenizer_class"))[:2].lower())
    if not listed and ("extra_ids" in config or t5):
        # as its code adds them, the first one last
        listed = [f"<extra_id_{n}>" for n in range(config.get("extra_ids", 100))]
    with blame_tokenizer(file):
        return SentencePiece(read_bytes(file, fix=AGAIN), added=order_appended(listed))


def _add_special(tokenizer: tokenizers.Tokenizer, config: dict[str, Any]) -> tokenizers.Tokenizer:
    return finish(tokenizer, _roles_among(set(tokenizer.get_vocab()), config))


def _roles(backend: Backend, config: dict[str, Any], path: Path) -> Roles:
    special = _roles_among(set(backend.tokens), config)
    if not special.pad:
        fix = 'name one as "pad_token" in tokenizer_config.json'
        raise DataError(
            "no padding or end-of-text token among its special tokens", file=path, fix=fix
        )
    return special


def _roles_among(tokens: set[str], config: dict[str, Any]) -> Roles:
    named: dict[str, Any] = {
        name: token for name in NAMES if (token := _spelling(config, name)) in tokens
    }
    if "eos" not in named and not named.keys() >= {"cls", "sep"}:  # names nothing that ends a text
        usual = {
            name: token
            for name, spellings in _SPELLINGS.items()
            for token in reversed(spellings)
            if token in tokens
        }
        named = {**usual, **named}
    if "cls" in named and "sep" in named:  # BERT's [CLS] and [SEP] also begin and end a text
        named = {"bos": named["cls"], "eos": named["sep"], **named}
    named.setdefault("pad", named.get("eos") or "")
    named["sentinels"] = sort_numbered(roles.SENTINEL, tokens)
    named["unused"] = sort_numbered(roles.UNUSED, tokens.intersection(_list_further(config)))
    double = named.get("sep") == "</s>"  # RoBERTa's family
    named_pair = (
        ("cls", "A", "sep", "sep", "B", "sep") if double else ("cls", "A", "sep", "B", "sep")
    )
    if named.get("cls") == roles.XLNET.cls and "sep" in named and not _has_suffixes(tokens):
        return Roles(**named, single=roles.XLNET.single, pair=roles.XLNET.pair)
    if "cls" in named and "sep" in named:
        return Roles(**named, pair=named_pair)
    first = ("bos",) if "bos" in named else ()
    return Roles(**named, single=(*first, "A", "eos"), pair=(*first, "A", "eos", "B", "eos"))


def _has_suffixes(tokens: set[str]) -> bool:
    """Whether these are pieces of BERT's kind."""
    return any(token.startswith("##") for token in tokens)


def _add_templates(backend: Backend, special: Roles) -> Roles:
    """`special` with the orders of roles that the folder's own post-processor writes, where it
    writes any; a token without a role, such as a language, keeps its spelling.
    """
    if not isinstance(backend, Rust) or not backend.tokenizer.num_special_tokens_to_add(True):
        return special
    role = {
        getattr(special, name): name
        for name in ("eos", "bos", "sep", "cls")
        if getattr(special, name)
    }
    orders = []
    for second in (None, "a"):
        encoding = backend.tokenizer.encode("a", second, add_special_tokens=True)
        order: list[str] = []
        for number, part in zip(encoding.ids, encoding.sequence_ids, strict=True):
            token = backend.tokens[number]
            name = SEGMENTS[part] if part is not None else role.get(token, token)
            if not (part is not None and name in order):
                order.append(name)
        orders.append(tuple(order))
    return replace(special, single=orders[0], pair=orders[1])


def _spelling(config: dict[str, Any], name: str) -> str | None:
    value = config.get(f"{name}_token")
    return value["content"] if isinstance(value, dict) else value


def _list_further(config: dict[str, Any]) -> list[str]:
    """The further special tokens that a folder names; the key depends on the version of its
    library.
    """
    listed = config.get("additional_special_tokens") or config.get("extra_special_tokens") or []
    listed = listed.values() if isinstance(listed, dict) else listed
    return [token["content"] if isinstance(token, dict) else token for token in listed]


def _list_appended(config: dict[str, Any]) -> list[str]:
    """The special tokens that stand behind a vocabulary without them, in their order."""
    mask = _spelling(config, "mask")
    return [*([mask] if mask else []), *_list_further(config)]


def _name_by_family(folder: Path) -> dict[str, Any]:
    """The special tokens of a folder's family, which its files may leave out."""
    named = _NAMED.get(str(_read_type(folder)), {})
    return {f"{name}_token": named[name] for name in NAMES if name in named}


def _read_type(folder: Path) -> Any:
    """The family that the config.json of a folder names."""
    return _json(folder / "config.json").get("model_type")


def _find_fix(files: Collection[str], folder: Path) -> str:
    """The fix for a folder without a tokenizer."""
    if missing := [name for name in (IDS, MERGES) if WORDS in files and name not in files]:
        place = shlex.quote(str(folder))
        return f"curl --output-dir {place} -O {HOME}{missing[0]}"
    return "tokenizer.path=<folder with one of these>"


def _list_code(config: dict[str, Any]) -> list[str]:
    """The names of the code that a tokenizer_config.json gives to its tokenizer."""
    named = (config.get("auto_map") or {}).get("AutoTokenizer") or []
    return [str(each) for each in ([named] if isinstance(named, str) else named) if each]


def _json(file: Path) -> dict[str, Any]:
    return read_json(file, _Config, fix=AGAIN) if file.exists() else {}


def _twin(backend: Backend, special: Roles) -> Rust:
    assert isinstance(backend, SentencePiece)
    return backend.twin or convert_to_rust(backend, special)
