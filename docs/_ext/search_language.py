"""Search in English and Russian: each word is stemmed by the rules of its alphabet."""

import re
from pathlib import Path

import snowballstemmer
import sphinx.search
from sphinx.search.en import SearchEnglish
from sphinx.search.ru import SearchRussian

SCRIPTS = Path(sphinx.search.__file__).parent / "minified-js"
NAMES = ("base-stemmer.js", "english-stemmer.js", "russian-stemmer.js")
STEMMER = """
class Stemmer {
  constructor() {
    this.english = new EnglishStemmer();
    this.russian = new RussianStemmer();
  }
  stemWord(word) {
    return (/[а-яё]/i.test(word) ? this.russian : this.english).stemWord(word);
  }
}
"""


class SearchEnglishAndRussian(SearchEnglish):
    """Stems and stop words of both languages, for the index and for the questions in the browser."""

    js_stemmer_rawcode = ""
    js_stemmer_code = "\n".join([*((SCRIPTS / name).read_text(encoding="utf-8") for name in NAMES), STEMMER])
    stopwords = SearchEnglish.stopwords | SearchRussian.stopwords

    def __init__(self, options: dict[str, str]) -> None:
        """Create both stemmers."""
        super().__init__(options)
        self.russian = snowballstemmer.stemmer("russian")

    def stem(self, word: str) -> str:
        """Return the stem of a word in either language."""
        return self.russian.stemWord(word.lower()) if re.search("[а-яё]", word, re.IGNORECASE) else super().stem(word)
