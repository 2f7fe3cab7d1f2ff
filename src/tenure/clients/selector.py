"""The selector language: `type=counter and (state=failed or id=order-*) and not node=web-1`.

    selector   = all_of ("or" all_of)*
    all_of     = one ("and" one)*
    one        = "not" one | "(" selector ")" | field ("=" | "!=") value | id
    value, id  = a word, or "quoted" where it has spaces or parentheses; * and ? stand for anything

Parsing says where a mistake is. A selector is a pure function of what `jobs` tells of a job, or `nodes` of a node.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tenure.scheduler.errors import Mistake

__all__ = ["JOBS", "NODES", "BadSelector", "Language", "Selector", "glob", "one_name", "parse_selector"]

Job = Mapping[str, Any]
Selector = Callable[[Job], bool]


class BadSelector(Mistake):
    """The selector can't be read; the text points at the place."""

    def __init__(self, problem: str, text: str, at: int) -> None:
        super().__init__(f"the selector can't be read: {problem}, at column {at + 1}:\n  {text}\n  {' ' * at}^")


def _state(job: Job) -> list[str]:
    status = str(job["status"])
    so = {"stuck": job.get("stuck"), "retrying": job.get("error") and status != "failed", "waiting": job.get("waiting")}
    return [status, *(name for name, is_so in so.items() if is_so)]


class Language(NamedTuple):
    """What can be asked of one kind of thing."""

    fields: Mapping[str, Callable[[Job], list[str]]]
    states: Sequence[str]
    plain: str
    """The field that a word alone is compared with."""


JOB_FIELDS: dict[str, Callable[[Job], list[str]]] = {
    "type": lambda job: [str(job["type"])],
    "id": lambda job: [str(job["id"])],
    "node": lambda job: [str(job["node"]), str(job.get("node_name", ""))],
    "state": _state,
    "application": lambda job: [str(job["application"] or "default")],
    "version": lambda job: [str(job["version"])],
    "partition": lambda job: [str(job["partition"])],
}
"""What can be asked of a job. `state` is running, paused, failed, finishing or stopping; also stuck, waiting, and
retrying: what failed is tried again."""

JOB_STATES = ("running", "paused", "failed", "finishing", "stopping", "stuck", "retrying", "waiting")
JOBS = Language(JOB_FIELDS, JOB_STATES, "id")
NODES = Language(
    {
        "node": lambda node: [str(node["id"]), str(node["name"])],
        "id": lambda node: [str(node["id"])],
        "name": lambda node: [str(node["name"])],
        "state": lambda node: [str(node["state"])],
        "version": lambda node: [str(node["version"])],
        "member": lambda node: [str(node["member"])],
        "type": lambda node: list(node["types"]),
    },
    ("running", "draining", "silent"),
    "node",
)
"""The same of a node; `type` is a job type that it knows."""
_TOKEN = re.compile(r'\s*(?:(?P<mark>!=|=|\(|\))|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()="!]+(?:![^=\s()"]+)*))')


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_selector(text: str, language: Language = JOBS) -> Selector:
    """What the text says; everything, where it says nothing. Raises `BadSelector`."""
    tokens = _tokens(text)
    if not tokens:
        return lambda job: True
    parser = _Parser(text, tokens, language)
    selector = parser.any_of()
    if (left := parser.peek()) is not None:
        raise BadSelector(f"{left.text!r} comes unexpectedly (is there an 'and' or 'or' missing?)", text, left.at)
    return selector


def one_name(text: str) -> str:
    """The id or name that the text is, if it is nothing else: no condition, nothing that stands for several. Else
    empty."""
    tokens = _tokens(text)
    if len(tokens) != 1 or tokens[0].kind == "mark" or not {"*", "?"}.isdisjoint(tokens[0].text):
        return ""
    return tokens[0].text


def _tokens(text: str) -> list[_Token]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            problem = "a quoted text does not end" if text[at] == '"' else f"{text[at]!r} has no meaning here"
            raise BadSelector(problem, text, at)
        kind = str(found.lastgroup)
        value = found[kind]
        start = found.start(kind) - (kind == "quoted")
        tokens.append(_Token(kind, re.sub(r"\\(.)", r"\1", value) if kind == "quoted" else value, start))
        at = found.end()
    return tokens


class _Parser:
    def __init__(self, text: str, tokens: Sequence[_Token], language: Language) -> None:
        self.text, self.tokens, self.language, self.next = text, tokens, language, 0

    def peek(self) -> _Token | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def take(self, expected: str) -> _Token:
        token = self.peek()
        if token is None:
            raise BadSelector(f"{expected} is missing", self.text, len(self.text.rstrip()))
        self.next += 1
        return token

    def takes_word(self, word: str) -> bool:
        token = self.peek()
        if token is not None and token.kind == "word" and token.text.lower() == word:
            self.next += 1
            return True
        return False

    def any_of(self) -> Selector:
        parts = [self.all_of()]
        while self.takes_word("or"):
            parts.append(self.all_of())
        return parts[0] if len(parts) == 1 else lambda job: any(part(job) for part in parts)

    def all_of(self) -> Selector:
        parts = [self.one()]
        while self.takes_word("and"):
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else lambda job: all(part(job) for part in parts)

    def one(self) -> Selector:
        if self.takes_word("not"):
            inner = self.one()
            return lambda job: not inner(job)
        token = self.take("a condition")
        if token.kind == "mark":
            if token.text != "(":
                raise BadSelector(f"a condition is missing before {token.text!r}", self.text, token.at)
            inner = self.any_of()
            closing = self.take("')'")
            if closing.kind != "mark" or closing.text != ")":
                raise BadSelector(f"')' is missing before {closing.text!r}", self.text, closing.at)
            return inner
        if token.kind == "word" and token.text.lower() in ("and", "or"):
            raise BadSelector(f"a condition is missing before {token.text!r}", self.text, token.at)
        operator = self.peek()
        if operator is None or operator.kind != "mark" or operator.text not in ("=", "!="):
            return _condition(self.language.fields[self.language.plain], token.text)
        return self.condition(token, operator)

    def condition(self, field: _Token, operator: _Token) -> Selector:
        fields, states = self.language.fields, self.language.states
        if field.text not in fields:
            raise BadSelector(f"{field.text!r} is none of {', '.join(fields)}", self.text, field.at)
        self.next += 1
        value = self.take(f"a value after {operator.text!r}")
        if value.kind == "mark":
            raise BadSelector(f"a value is missing after {operator.text!r}", self.text, value.at)
        if field.text == "state" and not any(map(glob(value.text), states)):
            raise BadSelector(f"{value.text!r} is none of {', '.join(states)}", self.text, value.at)
        condition = _condition(fields[field.text], value.text)
        return condition if operator.text == "=" else lambda job: not condition(job)


def _condition(values: Callable[[Job], list[str]], value: str) -> Selector:
    matches = glob(value)
    return lambda job: any(map(matches, values(job)))


def glob(pattern: str) -> Callable[[str], bool]:
    """Only * and ? mean something; brackets, which shells' patterns know too, are common in ids."""
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    matches = re.compile("".join(parts), re.DOTALL).fullmatch
    return lambda text: matches(text) is not None
