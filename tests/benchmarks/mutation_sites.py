"""Mutation sites of a Python file, for mutants.py: places where one operator, number or condition can be changed.

A mutation replaces a span of the source, so that all other lines stay where they are. Skips texts, annotations,
decorators, f-strings, `__repr__` and blocks for type checkers.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SWAPS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
NEGATED_BY_SWAP = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
NOT_SUBTRACTED = (ast.JoinedStr, ast.List, ast.Tuple)  # `-` is a TypeError there, which any test finds


@dataclass(frozen=True)
class Site:
    """One mutation: bytes `start` to `end` of a file become `text`."""

    file: str
    line: int
    column: int
    operator: str
    start: int
    end: int
    text: str
    statement: range  # lines of the statement, without those of its block
    in_function: bool

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def mutated(self) -> bytes:
        source = (ROOT / self.file).read_bytes()
        return source[: self.start] + self.text.encode() + source[self.end :]

    def compiles(self) -> bool:
        try:
            compile(self.mutated(), self.file, "exec")
        except SyntaxError:
            return False
        return True

    def diff(self) -> str:
        """Return the first changed line before and after."""
        files = (ROOT / self.file).read_bytes(), self.mutated()
        lines = [file.decode().splitlines()[self.line - 1 :] for file in files]
        return next(f"{old.strip()}  =>  {new.strip()}" for old, new in zip(*lines, strict=False) if old != new)


def sources(folders: Iterable[str] = ("",)) -> list[str]:
    """Return the files of the package, or of some of its folders, relative to the repository."""
    found = {path for folder in folders for path in (ROOT / "langchain_rageval" / folder).rglob("*.py")}
    return sorted(str(path.relative_to(ROOT)) for path in found)


@cache
def function_lines(file: str) -> list[int]:
    """Return the lines in the bodies of functions."""
    functions = [
        node
        for node in ast.walk(ast.parse((ROOT / file).read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted({line for node in functions for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)})


def sites_of(file: str) -> list[Site]:
    """Return the mutation sites of a file."""
    return list(_File(file).sites())


class _File:
    def __init__(self, file: str) -> None:
        self.file, self.source = file, (ROOT / file).read_bytes()
        self.starts = [0]  # positions in the syntax tree are a line and a column of bytes
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def sites(self) -> Iterator[Site]:
        yield from self.below(ast.parse(self.source), range(0), False)

    def below(self, node: ast.AST, statement: range, in_function: bool) -> Iterator[Site]:
        if _skipped(node):
            return
        if isinstance(node, ast.stmt):
            block = getattr(node, "body", None)
            end = block[0].lineno if block else (node.end_lineno or node.lineno) + 1
            statement = range(node.lineno, max(end, node.lineno + 1))
        for operator, start, end, text in (*self.changes(node), *self.swaps(node)):
            line = self.source.count(b"\n", 0, start) + 1
            column = start - self.starts[line - 1]
            yield Site(self.file, line, column, operator, start, end, text, statement, in_function)
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, value in ast.iter_fields(node):
            if name not in {"annotation", "returns", "decorator_list"}:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self.below(child, statement, in_function or (function and name == "body"))

    def span(self, node: Any) -> tuple[int, int]:
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def wrapped(self, node: ast.AST, form: str) -> tuple[int, int, str]:
        start, end = self.span(node)
        return start, end, form.format(self.source[start:end].decode())

    def changes(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:  # noqa: C901 - a table of the operators
        """Yield operator, start, end and new text of the mutations of a node."""
        match node:
            case ast.UnaryOp(op=ast.Not()):
                start = self.span(node)[0]
                yield "drop not", start, start + len("not"), ""
            case ast.Constant(value=bool() as value):
                yield "bool", *self.span(node), str(not value)
            case ast.Constant(value=int() | float() as value):
                yield "number", *self.span(node), repr(value + 1)
            case ast.If(test=test) | ast.IfExp(test=test) if not _negated_otherwise(test):
                yield "negate if", *self.wrapped(test, "not ({})")
            case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
                yield "return None", *self.span(value), "None"
            case ast.Call(func=ast.Name(id=name) as function) if name in NAMES:
                yield name, *self.span(function), NAMES[name]
            case ast.Call(func=ast.Name(id="sorted"), keywords=words) if all(word.arg != "reverse" for word in words):
                yield "sorted", *self.wrapped(node, "{}[::-1]")
            case ast.Break():
                yield "break", *self.span(node), "continue"
            case ast.Continue():
                yield "continue", *self.span(node), "break"
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield "delete call", *self.span(node), "pass"
            case ast.Slice(lower=lower, upper=upper):
                for bound in (lower, upper):
                    if bound and not isinstance(bound, ast.Constant):
                        yield "slice", *self.wrapped(bound, "({}) + 1")

    def swaps(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        """Yield the same for operators between two operands."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                terms = [left, *others]
            case ast.BoolOp(op=op, values=terms):
                ops = [op] * (len(terms) - 1)
            case ast.BinOp(left=left, op=op, right=right) | ast.AugAssign(target=left, op=op, value=right):
                terms, ops = [left, right], [op]
                if any(isinstance(x, NOT_SUBTRACTED) or isinstance(getattr(x, "value", 0), str | bytes) for x in terms):
                    return
            case _:
                return
        for left, op, right in zip(terms, ops, terms[1:], strict=False):
            old, new = SWAPS.get(type(op), ("", ""))
            start = self.span(left)[1]
            gap = self.source[start : self.span(right)[0]].decode()
            found = re.search(re.escape(old).replace(r"\ ", r"\s+"), gap)
            if old and found and "#" not in gap:
                yield old, start + found.start(), start + found.end(), new


def _skipped(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr():  # mostly messages; Python 3.11 has no positions inside them
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.FunctionDef(name="__repr__"):
            return True
        case ast.keyword(arg="strict", value=ast.Constant()):  # `zip` checks lengths that the caller has made equal
            return True
    return False


def _negated_otherwise(test: ast.expr) -> bool:
    """Return True if another mutation negates the condition already."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and isinstance(test.ops[0], NEGATED_BY_SWAP)
    return isinstance(test, ast.Constant) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
