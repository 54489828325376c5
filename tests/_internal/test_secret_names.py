"""Which names of fields hold secrets, and removal of keys from texts."""

from helpers.each import each

from langchain_rageval._internal.redaction import is_carrier_name, is_secret_name, without_keys


@each(
    "name",
    [
        *("api_key", "OPENAI_API_KEY", "apiKey", "x-functions-key", "client_secret", "password", "credentials", "auth"),
        *("Authorization", "access_token", "cookie", "Set-Cookie", "sig", "signature", "azure_ad_token_provider"),
    ],
)
def test_names_of_secrets_are_recognised(name):
    assert is_secret_name(name)


@each("name", ["max_tokens", "eos_token", "text_key", "author", "design", "tokenizer", "keyboard"])
def test_other_names_are_no_secrets(name):
    assert not is_secret_name(name)


def test_names_of_headers_cookies_and_queries_are_recognised():
    names = ["headers", "default_headers", "extra_headers", "cookies", "default_query", "header", "model", "heading"]
    assert [is_carrier_name(name) for name in names] == [True, True, True, True, True, True, False, False]


@each(
    ("text", "clean"),
    [
        ("http://user:pass@host/v1", "http://host/v1"),
        ("https://h/v1?api-version=1&sig=abc%2F&x=1", "https://h/v1?api-version=1&sig=***&x=1"),
        ("https://h/bot/a1b2c3d4e5f6g7h8i9j0k1/send", "https://h/bot/***/send"),
        ("Bearer abcdefghij", "Bearer ***"),
        ("key sk-abcdefghijklmnop1234", "key ***"),
        ("and/or, 1/2, a plain text", "and/or, 1/2, a plain text"),
    ],
)
def test_keys_in_texts_are_replaced(text, clean):
    assert without_keys(text) == clean
