"""Words of Chinese by a segmenter of yours: pkuseg, LAC, THULAC, HanLP and others list them."""

from collections.abc import Iterator

from plmctl.core.parts import part_of


def cut(text: str) -> list[str]:
    """The words of a text, here by jieba with its hidden Markov model. With pkuseg it returns
    `SEGMENTER.cut(text)`; `SEGMENTER = pkuseg.pkuseg()` is built once.
    """
    import jieba

    return list(jieba.lcut(text))


@part_of("segment")
def words(text: str) -> Iterator[tuple[int, int]]:
    """The start and the end of each word."""
    end = 0
    for word in cut(text):
        start = text.index(word, end)
        end = start + len(word)
        yield start, end
