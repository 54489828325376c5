"""Texts without characters that command the terminal or reverse the writing direction."""

import json

from langchain_rageval._internal.page import printable, printable_json, printable_lines

HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b1m\x1b]8;;http://h\x1b\\\\b\u202e\u2066c\u200f\u061c\u2028\rd"
FORBIDDEN = set("\x07\x1b\x9b\r\u202e\u2066\u200f\u061c\u2028")


def test_a_text_is_one_line_without_control_characters_and_marks():
    assert printable("a\x1b[31m b\n\tc\u202ed\x9b") == "a\ufffd[31m b cd\ufffd"
    assert printable_lines("a\n\x00b\u2067c") == "a\n\ufffdbc"
    assert printable("ёж, 中文, עברית, 👨‍👩‍👧 «да»") == "ёж, 中文, עברית, 👨‍👩‍👧 «да»"


def test_a_json_document_keeps_its_content():
    document = json.dumps({HOSTILE: HOSTILE}, ensure_ascii=False)
    assert not FORBIDDEN & set(printable_json(document))
    assert json.loads(printable_json(document)) == {HOSTILE: HOSTILE}
