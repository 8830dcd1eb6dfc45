"""What `--preview` prints, exactly, for each family of rows; the rows are made by hand."""

from functools import cache
from textwrap import dedent

import numpy as np
from rich.console import Console

from plmctl.config.glossary import fields_in, known_fields
from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.data.preview import preview

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *SPECIAL,
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "dog",
    "<0>",
    "<1>",
    "猫",
    "坐在",
    "垫子上",
]
MASK = WORDS.index("[MASK]")
ID = {word: number for number, word in enumerate(WORDS)}


@cache
def find_fields():
    return fields_in(known_fields())


def seq(*rows: str, width: int = 12, **tracks) -> Seq:
    """Rows of words, padded to `width`."""
    ids = [[ID[word] for word in row.split()] for row in rows]
    padded = np.array([row + [0] * (width - len(row)) for row in ids])
    wide = {
        name: np.array([row + [-1] * (width - len(row)) for row in values])
        for name, values in tracks.items()
    }
    return Seq(padded, np.array([len(row) for row in ids]), wide)


def rows(given: Seq, **fields) -> Rows:
    seqs = fields.pop("seqs", None) or {"text": given}
    return Rows(key=np.arange(7, 7 + len(given.ids)), seqs=seqs, **fields)


def labels(width: int = 12, **at) -> np.ndarray:
    """One row of labels: `labels(p3="cat")` or `labels(p3=1)`."""
    found = np.full((1, width), IGNORE)
    for place, value in at.items():
        found[0, int(place[1:])] = ID[value] if isinstance(value, str) else value
    return found


def shown(before: Rows, after: Rows, **options) -> str:
    pieces = lambda ids: [WORDS[i] for i in ids]  # noqa: E731
    return preview(before, after, pieces, mask=MASK, fields=find_fields(), **options).plain


def expected(text: str) -> str:
    return dedent(text).strip("\n")


def test_masked_replaced_and_kept() -> None:
    before = rows(seq("[CLS] the cat sat on a mat [SEP]"))
    after = rows(
        seq("[CLS] the [MASK] dog on a mat [SEP]"),
        targets={"mlm": labels(p2="cat", p3="sat", p6="mat")},
    )
    assert shown(before, after) == expected("""
        row 7 of text: 8 of 12 tokens; 3 predicted: 1 masked, 1 replaced, 1 kept
          before  [CLS] the cat     sat  on a mat  [SEP]
          text    [CLS] the *[MASK] ~dog on a =mat [SEP]
          mlm               cat     sat       mat

        marks: * hidden  ~ another token  = predicted but unchanged
        """)


def test_no_noise_shows_the_next_tokens() -> None:
    before = rows(seq("the cat sat"))
    after = rows(seq("the cat sat"), targets={"clm": labels(p0="cat", p1="sat")})
    assert shown(before, after) == expected("""
        row 7 of text: 3 of 12 tokens
          text  the cat sat
          clm   cat sat
        """)


def test_several_rows_and_the_width_of_the_terminal() -> None:
    given = rows(
        seq("the cat sat on a mat", "a dog"),
        targets={"clm": np.concatenate([labels(p0="cat"), labels(p0="dog")])},
    )
    assert shown(given, given, width=24) == expected("""
        row 7 of text: 6 of 12 tokens
          text  the cat sat on a
          clm   cat

          text  mat

        row 8 of text: 2 of 12 tokens
          text  a   dog
          clm   dog
        """)


def test_chinese_takes_two_columns_a_character() -> None:
    before = rows(seq("[CLS] 猫 坐在 垫子上 [SEP]"))
    after = rows(
        seq("[CLS] 猫 [MASK] 垫子上 [SEP]"), targets={"mlm": labels(p2="坐在", p3="垫子上")}
    )
    assert shown(before, after) == expected("""
        row 7 of text: 5 of 12 tokens; 2 predicted: 1 masked, 0 replaced, 1 kept
          before  [CLS] 猫 坐在    垫子上  [SEP]
          text    [CLS] 猫 *[MASK] =垫子上 [SEP]
          mlm              坐在    垫子上

        marks: * hidden  = predicted but unchanged
        """)


def test_filled_in_spans_deletions_and_insertions() -> None:
    clean = seq("[CLS] the cat sat on a mat [SEP]")
    before = rows(clean)
    after = rows(clean, seqs={"source": seq("[CLS] the [MASK] on [MASK] a [SEP]"), "target": clean})
    assert shown(before, after) == expected("""
        row 7 of text: 7 of 12 tokens
          target  [CLS] the cat     -sat on         a -mat [SEP]
          source  [CLS] the *[MASK]      on +[MASK] a      [SEP]

        marks: * hidden  - deleted  + inserted
        """)


def test_permuted_sentences_are_moved() -> None:
    clean = seq("the cat sat on a mat", sentence=[[0, 0, 0, 1, 1, 1]])
    after = rows(
        clean,
        seqs={
            "source": seq("on a mat the cat sat", sentence=[[1, 1, 1, 0, 0, 0]]),
            "target": clean,
        },
    )
    assert shown(rows(clean), after) == expected("""
        row 7 of text: 6 of 12 tokens
          target                the cat sat <on <a <mat
          source    >on >a >mat the cat sat
          sentence  1           0

        marks: < moved away  > moved here
        """)


def test_a_target_of_its_own() -> None:
    before = rows(seq("the cat sat on a mat"))
    after = rows(
        seq("the cat"),
        seqs={"source": seq("the <0> on a <1>"), "target": seq("<0> cat sat <1> mat", width=6)},
    )
    assert shown(before, after) == expected("""
        row 7 of text: 5 of 12 tokens
          before  the cat  -sat on a mat
          source  the ~<0>      on a ~<1>
          target  <0> cat sat <1> mat

        marks: ~ another token  - deleted
        """)


def test_targets_of_the_written_sequence_stand_below_it() -> None:
    pair = {"source": seq("the cat"), "target": seq("a dog", width=6)}
    given = rows(seq("the cat"), seqs=pair, targets={"clm": labels(6, p0="dog")})
    assert shown(given, given) == expected("""
        row 7 of text: 2 of 12 tokens
          source  the cat
          target  a   dog
          clm     dog
        """)


def test_shuffled_tokens_and_what_stood_there() -> None:
    before = rows(seq("the cat sat on a mat"))
    after = rows(
        seq("the sat on cat [MASK] mat"),
        targets={"mlm": labels(p4="a"), "shuffle": labels(p1="cat", p2="sat", p3="on")},
    )
    assert shown(before, after) == expected("""
        row 7 of text: 6 of 12 tokens; 1 predicted: 1 masked, 0 replaced, 0 kept
          before   the <cat <sat <on  a       mat
          text     the >sat >on  >cat *[MASK] mat
          mlm                         a
          shuffle      cat  sat  on

        marks: * hidden  < moved away  > moved here
        """)


def test_an_order_of_factorisation() -> None:
    given = seq("the cat sat", order=[[0, 2, 1]])
    after = rows(given, targets={"plm": labels(p1="cat", p2="sat")})
    assert shown(rows(seq("the cat sat")), after) == expected("""
        row 7 of text: 3 of 12 tokens
          text   the cat sat
          plm        cat sat
          order  0   2   1
        """)


def test_documents_of_a_packed_row_and_tags() -> None:
    given = rows(
        seq("the cat a dog", document=[[0, 0, 1, 1]], sense=[[0, 8, 0, 8]], position=[[0, 1, 0, 1]])
    )
    assert shown(given, given) == expected("""
        row 7 of text: 4 of 12 tokens
          text      the cat a dog
          document  0       1
          sense     0   8   0 8
        """)


def test_pair_labels_in_words_and_values() -> None:
    given = rows(
        seq("[CLS] the cat [SEP] a dog [SEP]", segment=[[0, 0, 0, 0, 1, 1, 1]]),
        anchors=np.array([[0, 0]]),
        labels={"pair": np.array([1])},
        values={"prefix": np.array([4])},
    )
    assert shown(
        given, given, meanings={"pair": ("B follows A", "B is from another document")}
    ) == expected(
        """
        row 7 of text: 7 of 12 tokens
          text     [CLS] the cat [SEP] a dog [SEP]
          segment  0                   1
          pair: 1 (B is from another document)
          prefix: 4
        """
    )


def test_anchors_belong_to_their_rows() -> None:
    given = rows(
        seq("the", "a"),
        anchors=np.array([[0, 0], [0, 0], [1, 0]]),
        labels={"pair": np.array([0, 1, IGNORE])},
    )
    assert "  pair: 0, 1\n" in shown(given, given)
    assert shown(given, given).endswith("  pair: -100")


def test_spans_and_replaced_tokens() -> None:
    given = rows(
        seq("the cat sat on a mat"),
        targets={"replaced": labels(p0=0, p1=1)},
        spans={"entity": np.array([[0, 1, 2, 17], [0, 5, 1, 3]]), "chosen": np.array([[0, 3, 2]])},
    )
    assert shown(given, given) == expected("""
        row 7 of text: 6 of 12 tokens
          text      the cat sat on a mat
          replaced  0   1
          entity        |17 -        |3
          chosen                |  -
        """)


def test_characters_and_pieces_that_would_break_the_line() -> None:
    given = rows(
        seq("the"),
        seqs={"text": seq("the cat"), "characters": Seq(np.ones((1, 12, 5), int), np.array([2]))},
    )
    text = preview(given, given, lambda ids: ["\n", ""][: len(ids)]).plain
    assert (
        text
        == "row 7 of text: 2 of 12 tokens\n  text  \\n ''\n  characters: 2 words of 5 characters"
    )


def test_colours_on_a_terminal_only(monkeypatch) -> None:
    before = rows(seq("the cat"))
    after = rows(seq("the [MASK]"), targets={"mlm": labels(p1="cat")})
    text = preview(
        before, after, lambda ids: [WORDS[i] for i in ids], mask=MASK, fields=find_fields()
    )

    def printed(**options) -> str:
        console = Console(width=80, **options)
        with console.capture() as capture:
            console.print(text, soft_wrap=True)
        return capture.get()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;33m*[MASK]\x1b[0m" in printed(force_terminal=True)
    assert printed(force_terminal=False) == text.plain + "\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "33m" not in printed(force_terminal=True)


def test_row_by_row_a_mixed_batch_of_lengths() -> None:
    """Rows whose noise changed nothing stand beside rows where it did; padding is never shown."""
    before = rows(seq("the cat", "a dog sat"))
    after = rows(
        seq("the cat", "a [MASK] sat"),
        targets={"mlm": np.concatenate([labels(), labels(p1="dog")])},
    )
    first, second, _ = shown(before, after).split("\n\n")
    assert (
        first == "row 7 of text: 2 of 12 tokens; 0 predicted: 0 masked, 0 replaced, 0 kept\n"
        "  text  the cat"
    )
    assert "*[MASK]" in second
    assert "[PAD]" not in second
