"""Every character of a token is seen, on one line."""

import unicodedata

import pytest

from regard.views.labels import measure, show_line, show_token, wrap


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("西", "西"),
        (" a b", "␣a␣b"),
        ("\t\r\n", "⇥↵↵"),
        ("\u3000", "␣"),
        ("\xa0", "U+00A0"),
        ("", "∅"),
        ("<eos>", "<eos>"),
        ("$x$", "$x$"),
        ("\u202eabc", "U+202Eabc"),
        ("\ud800", "U+D800"),
        ("\x00", "U+0000"),
        ("\u0301", "◌\u0301"),
        ("x" * 30, "x" * 23 + "…"),
        ("x" * 24, "x" * 24),
    ],
)
def test_a_token_is_shown(token, shown):
    assert show_token(token) == shown


def test_no_character_makes_a_second_line_or_turns_the_text_around():
    joiners = "\u200c\u200d"
    # the first plane, and the invisible tags of the last that has any
    for code in [*range(0x10000), *range(0xE0000, 0xE0080)]:
        c = chr(code)
        shown = show_token(c)
        assert shown.encode()
        assert len(shown.splitlines()) == 1
        if c not in joiners:
            assert not {unicodedata.category(x) for x in shown} & {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}, hex(code)


def test_the_spaces_of_a_title_stay():
    assert show_line("a b\nc") == "a b↵c"


def test_lines_are_wrapped_and_nothing_is_lost():
    text = "how far is it from 西安到北京有高铁吗 to the old city wall " + "x" * 40
    lines = wrap(text, 9).split("\n")
    assert max(map(measure, lines)) <= 9
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert lines[0] == "how far is it"
    assert wrap("short", 9) == "short"
    assert wrap("", 9) == ""
    # a line holds one character at least, so that it ends
    assert wrap("西安", 0.1) == "西\n安"
