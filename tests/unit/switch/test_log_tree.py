"""Lines that compiled code writes: numbers of every form, as Python writes them."""

from __future__ import annotations

import numpy as np
import pytest

from innet.switch import log_tree
from innet.switch.jit.records import BYTES_BEGIN, BYTES_END, INGRESS_STEPS, NUMBER, Kind, head
from innet.switch.log_tree import OWN, PACKET, Hole, LineTree, PassWords, copy_mark, entry_mark
from innet.switch.recording import joined

HEADS = {"debug": "12:00 D "}
VALUES = [0, 1, 9, 10, 15, 16, 99, 2**31, 2**63 - 1, -1, -10, -(2**63)]


def a_pass(number, values, data=()):
    """A pass of a packet, with bytes before its values."""
    words = [0] * INGRESS_STEPS
    words[0], words[NUMBER] = head(Kind.INGRESS, 0), number
    if data:
        words[BYTES_BEGIN], words[BYTES_END] = len(words), len(words) + len(data)
    return np.array([*words, *data, *values], np.int64)


def learn(tree, words, text, *, reads=(0,)):
    """Let it write what ``text`` returns of the words, after these were looked at."""
    lines = []
    found = PassWords(words.tolist(), lines)
    for place in reads:
        found[place]
    lines += [("debug", text(found)), ("trace", "is not written")]
    found.end()
    assert found.is_kept
    tree.learn(found, lines, "leaf", 0)


def written(tree, words, **given):
    """What it writes about a pass, and why it returns."""
    tree.task[:] = 0
    for name, value in ({"COUNT": len(words), "NEWEST": -1} | given).items():
        tree.task[getattr(log_tree, name)] = value
    why = tree.write(words)
    return why, tree.output[: tree.task[log_tree.FILLED]].tobytes().decode()


@pytest.fixture
def tree():
    made = LineTree()
    made.begin_lines(HEADS)
    return made


@pytest.mark.parametrize(
    ("form", "signed", "mask"),
    [
        ("", False, -1),
        ("", True, -1),
        ("", False, 0xF0F0),
        ("x", False, -1),
        ("x", True, -1),
        ("#x", False, -1),
        ("016x", False, (1 << 64) - 1),
        ("04x", False, 0xFFFF),
    ],
)
def test_numbers_of_a_word_are_written_as_python_writes_them(tree, form, signed, mask):
    def text(words):
        hole = Hole(words, INGRESS_STEPS, 1, signed=signed)
        return format(hole if mask < 0 else hole & mask, form)

    learn(tree, a_pass(0, [5]), text)
    for number, value in enumerate(VALUES):
        words = a_pass(number, [value])
        wanted = format(joined([value], 0, 1, signed=signed) & mask, form)
        assert written(tree, words) == (log_tree.DONE, f"12:00 D {wanted}\n")


def test_numbers_of_several_words(tree):
    def text(whole, last):
        part = whole & (1 << 136) - 1
        return f"{whole:x} {whole:048x} {part:034x} {last & (1 << 64) - 1:x}"

    at = INGRESS_STEPS
    learn(
        tree,
        a_pass(0, [1, 2, 3]),
        lambda words: text(Hole(words, at, 3, signed=False), Hole(words, at + 1, 2, signed=False)),
    )
    for values in ([0, 0, 0], [0, 0, 7], [0, 1, 0], [-1, -2, -3], [1 << 62, 255, -1]):
        wanted = text(joined(values, 0, 3), joined(values, 1, 2))
        assert written(tree, a_pass(0, values)) == (log_tree.DONE, f"12:00 D {wanted}\n")


def test_what_it_does_not_write_is_told():
    def kept(show):
        words = PassWords([1, 2, 3], [])
        show(words)
        return words.is_kept

    assert kept(lambda words: str(Hole(words, 0, 1, signed=True)))
    assert not kept(lambda words: str(Hole(words, 0, 2, signed=False)))
    assert not kept(lambda words: f"{Hole(words, 0, 2, signed=True):x}")
    assert not kept(lambda words: Hole(words, 0, 2, signed=False) & (1 << 64 | 0xF0))
    assert kept(lambda words: Hole(words, 0, 2, signed=False) & ~(0xF << 64) & (1 << 128) - 1)


def test_passes_are_told_apart_by_what_was_looked_at_and_not_by_their_bytes(tree):
    first = INGRESS_STEPS
    for value in (3, 4):
        learn(
            tree,
            a_pass(0, [value, 9, 9]),
            lambda words: f"{words[first]}: {Hole(words, first + 1, 1, signed=False)}",
            reads=(0, first),
        )
    assert written(tree, a_pass(1, [3, 5, 0], data=[1, 2])) == (log_tree.DONE, "12:00 D 3: 5\n")
    assert written(tree, a_pass(1, [4, 6, 0], data=[7] * 9)) == (log_tree.DONE, "12:00 D 4: 6\n")
    assert written(tree, a_pass(1, [5, 6, 0]))[0] == log_tree.LACKS_LINES
    assert written(tree, a_pass(1, [4, 6, 0, 1]))[0] == log_tree.LACKS_LINES


def test_copies_and_entries(tree):
    place = INGRESS_STEPS
    learn(
        tree,
        a_pass(0, [3]),
        lambda _: f"{PACKET}.{copy_mark(OWN)} {copy_mark(1)} {entry_mark(place, 2, 1)}",
    )
    words = a_pass(7, [65539])
    assert written(tree, words)[0] == log_tree.LACKS_TEXTS
    assert log_tree.table_and_row(int(tree.task[log_tree.KEY])) == (2, 65539)
    tree.learn_entry(("handle", "all"))
    assert written(tree, words) == (log_tree.DONE, "12:00 D 7.0 2 all\n")
    assert written(tree, words, BEFORE=10, COPY=4, MADE=5) == (
        log_tree.DONE,
        "12:00 D 17.4 6 all\n",
    )
    assert written(tree, a_pass(7, [3]))[0] == log_tree.LACKS_TEXTS  # has the same place
    assert written(tree, words, NEWEST=8)[0] == log_tree.LACKS_COPY
    tree.forget_entries()
    assert written(tree, words)[0] == log_tree.LACKS_TEXTS


def test_a_full_output_has_whole_passes_only(tree):
    learn(
        tree,
        a_pass(0, [3]),
        lambda words: f"{PACKET} {Hole(words, INGRESS_STEPS, 1, signed=False):x}",
    )
    whole = np.full(80, 7, np.uint8)
    for room in range(60):
        tree.output = whole[:room]
        found = written(tree, a_pass(7, [3]))
        assert found == (log_tree.LACKS_ROOM, "") or room >= len("12:00 D 7 3\n")
        assert (whole[room:] == 7).all()
    assert found == (log_tree.DONE, "12:00 D 7 3\n")
    tree.begin_lines({"debug": "12:01 D "})
    assert written(tree, a_pass(8, [4])) == (log_tree.DONE, "12:01 D 8 4\n")
