r"""Control tokens of chat templates in users' texts: escaped in what is sent, restored in what the judge returns.

Some servers read tokens such as `<|im_end|>`, `</s>` and `[/INST]` as the end of a turn, even within a text. In the
inputs and in the numbered contexts, the first character of such a token is therefore written as its JSON escape:
`<|im_end|>` as `\u003c|im_end|>`, `[/INST]` as `\u005b/INST]`. The judge can still read the token. In the inputs, which
are JSON, the escape stands for the same text. If a judge copies it from the contexts into its reply, also JSON,
it also stands for the same text there; a copy whose backslash is escaped once more is restored by
`restore_control_tokens`. A text that contains `\u003c|im_end|>` literally is sent as it is.
"""

from __future__ import annotations

import re

_ANGLE_NAMES = (
    *("s", "bos", "eos", "pad", "unk", "mask", "cls", "sep", "sop", "eop", "eot", "eoh", "eoa", "eom", "eod"),
    *(
        "start_of_turn",
        "end_of_turn",
        "start_of_image",
        "end_of_image",
        "image_soft_token",
        "unused\\d+",
        "reserved_\\d+",
    ),
    *("begin_of_text", "end_of_text", "beginoftext", "endoftext", "bot", "user", "assistant", "system", "human"),
    *("think", "tool_call", "tool_calls", "tool_response", "tools", "tool", "function_call", "fim_\\w+"),
)
_SQUARE_NAMES = (
    *("INST", "SYSTEM_PROMPT", "AVAILABLE_TOOLS", "TOOL_CALLS", "TOOL_RESULTS", "TOOL_CONTENT", "ARGS", "CALL_ID"),
    *("THINK", "MODEL_SETTINGS", "IMG", "IMG_BREAK", "IMG_END", "AUDIO", "BEGIN_AUDIO", "PREFIX", "SUFFIX", "MIDDLE"),
    *("SEP", "CLS", "MASK", "PAD", "UNK", "BOS", "EOS", "NL", "gMASK", "sMASK"),
)
_AFTER_ANGLE = (
    r"(?:[|｜][^<>\\\n]{1,64}?[|｜]>"  # <|im_start|>, <｜begin▁of▁sentence｜>
    r"|[|｜][^\s<>\\]{1,64}>|/?[^\s<>|｜/\\]{1,64}[|｜]>"  # <|turn>, <turn|>
    rf"|</?SYS>>|/?(?:{'|'.join(_ANGLE_NAMES)})>)"
)
_AFTER_SQUARE = rf"(?:\|[^\[\]\n]{{1,64}}?\|\]|/?(?:{'|'.join(_SQUARE_NAMES)})\])"
_TOKEN = re.compile(rf"<(?={_AFTER_ANGLE})|\[(?={_AFTER_SQUARE})")
_ESCAPED = re.compile(rf"(?<!\\)\\{{1,2}}u00(?:(3[cC])(?={_AFTER_ANGLE})|5[bB](?={_AFTER_SQUARE}))")


def escape_control_tokens(text: str) -> str:
    """Return a text, or a JSON document, whose control tokens begin with a JSON escape."""
    return _TOKEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def restore_control_tokens(text: str) -> str:
    """Return a text, or a JSON document, with the control tokens that `escape_control_tokens` changed."""
    return _ESCAPED.sub(lambda match: "<" if match[1] else "[", text) if "\\u00" in text else text
