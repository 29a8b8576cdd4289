"""The grammar of one assistant turn: its tags, thinking, answers and tool calls, from one pass over the text.

Rules
    * The structural tags are ``<think>``, ``<answer>``, ``<tool_call>``, ``<tool_code>``, ``<tool_response>``
      and their closings.
    * A think block runs from ``<think>`` to the next ``</think>``; nothing in it is structure. Without a
      closing it runs to the next structural tag or to the end of the turn.
    * An answer block runs from ``<answer>`` to the ``</answer>`` that closes it; without one, to the next
      structural tag or to the end of the turn.
    * A tool response is opaque: what stands in it is not the model's. An unclosed one runs to the end of the
      turn.
    * ``<tool_call>`` holds JSON objects ``{"name": …, "arguments": {…}}``: one, several glued together, or a
      list. ``<tool_code>`` holds Python calls with literal arguments; it is parsed, never evaluated. The
      closing tag may be missing: the call stands, the turn is not balanced. Tags in strings are not structure.

The time is linear in the length of the text, whatever the text is; ``MAX_TAGS`` and ``MAX_CODE_CHARS`` bound what
odd texts cost.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

TOOL_PARAMETERS: Mapping[str, tuple[str, ...]] = {"crop_video": ("start_time", "end_time")}
"""Names of each tool's parameters, in the order of its schema: what positional Python arguments stand for."""

MAX_CODE_CHARS = 8_192
"""Python code that is parsed in one turn, in characters (chosen here): a call takes about 50, ``ast`` about
1 µs for each character, and a turn of 100,000 characters must not take longer than 50 ms."""

MAX_TAGS = 1_024
"""Structural tags that are read in one turn (chosen here, for the same reason): a real turn has less than 50.
A turn with more is not balanced, and what stands after the last one read is text."""

Span = tuple[int, int]
"""Half-open range of characters."""

_TAG = re.compile(r"<(/?)(think|answer|tool_call|tool_code|tool_response)>")
_END_OF_TURN = re.compile(r"<\|(?:im_end|endoftext|eot_id)\|>")
_BETWEEN_OBJECTS = re.compile(r"[\s,\[\]]*")  # matches everywhere, perhaps nothing
_DECODER = json.JSONDecoder(strict=False)
_CALL_CHARS = 512
"""A first guess at the length of one call."""


@dataclass(frozen=True)
class ToolCall:
    """A call that parses.

    Attributes:
        name: the tool.
        arguments: as the model gave them; nothing has been checked.
        span: where the JSON object or the Python call stands in the text.
    """

    name: str
    arguments: dict[str, Any]
    span: Span = (0, 0)


@dataclass(frozen=True)
class ToolCallError:
    """A call that does not parse: where, and why, in words that the model can read."""

    span: Span
    reason: str


@dataclass(frozen=True)
class ParsedCalls:
    """The calls of a turn in their order, and what looked like a call and is none."""

    calls: list[ToolCall]
    errors: list[ToolCallError]


class Block(NamedTuple):
    """A think or answer block.

    Attributes:
        body: the stripped text in it.
        start: index of its opening tag.
        end: index past its closing tag, or past its body where it is not closed.
        closing: where its closing tag stands; none where it is not closed.
    """

    body: str
    start: int
    end: int
    closing: Span | None


class TurnStructure(NamedTuple):
    """What stands in a turn.

    Attributes:
        think_closings: every ``</think>`` that is structure, also one that closes nothing.
        balanced: every structural tag is closed, and properly nested.
    """

    thinks: list[Block]
    answers: list[Block]
    calls: list[ToolCall]
    errors: list[ToolCallError]
    think_closings: list[Span]
    balanced: bool


def render_tool_call(call: ToolCall) -> str:
    """The call in the Hermes form that Qwen's chat templates use; ``parse_tool_calls`` gives it back.

    >>> render_tool_call(ToolCall("crop_video", {"start_time": 1, "end_time": 5}))
    '<tool_call>\\n{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 5}}\\n</tool_call>'
    """
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def parse_tool_calls(text: str, tool_names: Collection[str] = ("crop_video",)) -> ParsedCalls:
    """The tool calls of one assistant turn.

    A bad call is an error and leaves its siblings. Calls in closed thinking or in a tool response are not
    calls.

    Args:
        tool_names: the tools there are; a call of another is an error.

    >>> parse_tool_calls("<tool_code>crop_video(1, end_time=5)</tool_code>").calls[0].arguments
    {'start_time': 1, 'end_time': 5}
    """
    structure = parse_turn(text, tool_names)
    return ParsedCalls(structure.calls, structure.errors)


def parse_turn(text: str, tool_names: Collection[str] = ("crop_video",)) -> TurnStructure:
    """The structure of one assistant turn."""
    return _TurnParser(text, tool_names).parse()


def strip_end_of_turn(text: str) -> str:
    """``text`` without surrounding white space and end-of-turn tokens such as ``<|im_end|>``."""
    return _END_OF_TURN.sub("", text).strip() if "<|" in text else text.strip()


class _Tag(NamedTuple):
    kind: str
    closes: bool
    start: int
    end: int


class _TurnParser:
    """One pass over the tags of a turn, which writes down what it meets."""

    def __init__(self, text: str, tool_names: Collection[str]):
        self._text = text
        self._tool_names = tool_names
        matches = islice(_TAG.finditer(text), MAX_TAGS + 1)
        tags = [_Tag(match[2], match[1] == "/", *match.span()) for match in matches]
        self._balanced = len(tags) <= MAX_TAGS
        self._tags = tags[:MAX_TAGS]
        self._starts = [tag.start for tag in self._tags]
        self._last_closing = {tag.kind: index for index, tag in enumerate(self._tags) if tag.closes}
        self._code_budget = MAX_CODE_CHARS
        self._open: list[tuple[_Tag, int]] = []
        self._thinks: list[Block] = []
        self._answers: list[Block] = []
        self._calls: list[ToolCall] = []
        self._errors: list[ToolCallError] = []
        self._think_closings: list[Span] = []

    def _find_closing(self, index: int) -> int | None:
        """Index of the next closing tag of the kind of the tag at ``index``."""
        kind, tags = self._tags[index].kind, self._tags
        if self._last_closing.get(kind, -1) < index:
            return None
        return next(i for i in range(index + 1, len(tags)) if tags[i].closes and tags[i].kind == kind)

    def parse(self) -> TurnStructure:
        index = 0
        while index < len(self._tags):
            tag = self._tags[index]
            if tag.closes:
                self._close(tag)
                index += 1
            elif tag.kind == "think":
                index = self._think(index)
            elif tag.kind == "tool_response":
                index = self._skip_response(index)
            elif tag.kind == "answer":
                self._answer(index)
                index += 1
            else:
                self._push(tag)
                end = self._json_calls(index) if tag.kind == "tool_call" else self._python_calls(index)
                index = max(index + 1, bisect_left(self._starts, end))
        return TurnStructure(
            self._thinks,
            self._answers,
            self._calls,
            self._errors,
            self._think_closings,
            self._balanced and not self._open,
        )

    def _push(self, tag: _Tag, answer: int = -1) -> None:
        """Notes an opening tag; ``answer`` is the index of the block that it opens."""
        self._open.append((tag, answer))

    def _body_end(self, index: int) -> int:
        """Where an unclosed block ends: at the next structural tag, or at the end of the turn."""
        return self._tags[index + 1].start if index + 1 < len(self._tags) else len(self._text)

    def _think(self, index: int) -> int:
        tag = self._tags[index]
        closing_index = self._find_closing(index)
        if closing_index is None:
            end = self._body_end(index)
            body = strip_end_of_turn(self._text[tag.end : end])
            self._thinks.append(Block(body, tag.start, end, None))
            self._push(tag)
            return index + 1
        closing = self._tags[closing_index]
        span = (closing.start, closing.end)
        body = self._text[tag.end : closing.start].strip()
        self._thinks.append(Block(body, tag.start, closing.end, span))
        self._think_closings.append(span)
        return closing_index + 1

    def _skip_response(self, index: int) -> int:
        closing_index = self._find_closing(index)
        if closing_index is None:
            self._balanced = False
            return len(self._tags)
        return closing_index + 1

    def _answer(self, index: int) -> None:
        """Enters the block as unclosed; ``_close`` completes it."""
        tag, end = self._tags[index], self._body_end(index)
        body = strip_end_of_turn(self._text[tag.end : end])
        self._push(tag, len(self._answers))
        self._answers.append(Block(body, tag.start, end, None))

    def _close(self, tag: _Tag) -> None:
        if tag.kind == "think":
            self._think_closings.append((tag.start, tag.end))
        if not any(opening.kind == tag.kind for opening, _ in self._open):
            self._balanced = False
            return
        # A wrongly nested closing still closes the last open tag of its kind.
        while True:
            opening, answer = self._open.pop()
            if opening.kind == tag.kind:
                break
            self._balanced = False
        if tag.kind == "answer":
            body = self._text[opening.end : tag.start].strip()
            self._answers[answer] = Block(body, opening.start, tag.end, (tag.start, tag.end))

    def _json_calls(self, index: int) -> int:
        """Reads the objects after a ``<tool_call>``; returns the end of what was read."""
        tag = self._tags[index]
        position, found = tag.end, False
        while True:
            position = _BETWEEN_OBJECTS.match(self._text, position).end()  # type: ignore[union-attr]
            if not self._text.startswith("{", position):
                break
            try:
                value, end = self._decode(position, index)
            except (ValueError, RecursionError) as error:
                self._error(position, self._after(index, position), f"the call is not JSON: {_why(error)}")
                return position
            self._add_json_call(value, (position, end))
            position, found = end, True
        end = self._after(index, position)
        rest = strip_end_of_turn(self._text[position:end])
        if rest:
            self._error(position, end, f"expected a JSON object in <tool_call>, found {rest[:40]!r}")
        elif not found:
            self._error(tag.start, end, "the <tool_call> is empty")
        return position

    def _after(self, index: int, position: int) -> int:
        """Start of the first tag at or after ``position``, or the end of the text."""
        following = bisect_left(self._starts, position, lo=index + 1)
        return self._starts[following] if following < len(self._tags) else len(self._text)

    def _decode(self, position: int, index: int) -> tuple[Any, int]:
        """Decodes the JSON value at ``position``.

        Windows of the text are decoded, up to the next tag and, while that one stands within a string, to
        later ones: json's own error counts the lines before it, so that many bad calls would take quadratic time.
        """
        end = self._after(index, position)
        if end - position > _CALL_CHARS:
            try:
                value, length = _DECODER.raw_decode(self._text[position : position + _CALL_CHARS])
                return value, position + length
            except json.JSONDecodeError:
                pass  # it may be cut; the longer window decides
        following, step = bisect_left(self._starts, position, lo=index + 1), 1
        while True:
            last = following >= len(self._tags)
            end = len(self._text) if last else self._starts[following]
            try:
                value, length = _DECODER.raw_decode(self._text[position:end])
            except json.JSONDecodeError as error:
                if last or not error.msg.startswith("Unterminated string"):
                    raise
                following, step = following + step, step * 2
            else:
                return value, position + length

    def _add_json_call(self, value: Any, span: Span) -> None:
        name = value.get("name")
        if not isinstance(name, str) or name not in self._tool_names:
            self._error(*span, self._unknown_tool(name))
            return
        if "arguments" not in value:
            self._error(*span, f'the call of {name} has no "arguments"')
            return
        arguments = value["arguments"]
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments, strict=False)
            except (ValueError, RecursionError):
                self._error(*span, f"the arguments of {name} are a string that is not JSON")
                return
        if not isinstance(arguments, dict):
            self._error(*span, f"the arguments of {name} must be an object, they are {type(arguments).__name__}")
            return
        self._calls.append(ToolCall(name, arguments, span))

    def _python_calls(self, index: int) -> int:
        """Reads the code after a ``<tool_code>``; returns its end."""
        tag = self._tags[index]
        ends = [t.start for t in self._tags[index + 1 : index + 3] if t.closes and t.kind == "tool_code"]
        # A closing tag may stand in a string: where the code up to it is cut, the next one is tried.
        ends = ends or [self._body_end(index)]
        reason = ""
        for end in ends:
            source = self._text[tag.end : end]
            self._code_budget -= len(source)
            if self._code_budget < 0:
                reason = f"more than {MAX_CODE_CHARS} characters of code in one turn"
                break
            try:
                module = _parse_python(strip_end_of_turn(source))
            except ValueError as error:
                reason = str(error)
                continue
            offset = tag.end + source.find(strip_end_of_turn(source)[:1] or "")
            self._add_python_calls(module, strip_end_of_turn(source), offset, (tag.start, end))
            return end
        self._error(tag.start, ends[0], reason)
        return ends[0]

    def _add_python_calls(self, module: ast.Module, source: str, offset: int, whole: Span) -> None:
        nodes = list(_call_nodes(module))
        if not nodes:
            self._error(*whole, "the <tool_code> is empty")
        locate = _Locator(source, offset)
        for node in nodes:
            span = locate.span(node)
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                self._error(*span, "only calls of a tool by its name are read, nothing is evaluated")
            elif node.func.id not in self._tool_names:
                self._error(*span, self._unknown_tool(node.func.id))
            else:
                try:
                    arguments = _literal_arguments(node, TOOL_PARAMETERS.get(node.func.id, ()))
                except ValueError as error:
                    self._error(*span, str(error))
                else:
                    self._calls.append(ToolCall(node.func.id, arguments, span))

    def _unknown_tool(self, name: Any) -> str:
        return f"there is no tool {str(name)[:40]!r}; the tools are {', '.join(self._tool_names)}"

    def _error(self, start: int, end: int, reason: str) -> None:
        self._errors.append(ToolCallError((start, max(start, end)), reason))


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "it is nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


def _parse_python(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # The model's odd escapes are no business of the caller's log.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise ValueError(f"the code is not valid Python: {message}") from None


def _call_nodes(module: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """What should be a call: bare or assigned to a name, alone or listed."""
    for statement in module.body:
        if isinstance(statement, ast.Expr):
            value: ast.expr | ast.stmt = statement.value
        elif isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
            value = statement.value
        else:
            value = statement
        if isinstance(value, ast.List | ast.Tuple):
            yield from value.elts
        else:
            yield value


def _literal_arguments(node: ast.Call, parameters: tuple[str, ...]) -> dict[str, Any]:
    if len(node.args) > len(parameters):
        raise ValueError(f"{len(node.args)} positional arguments; the parameters are {', '.join(parameters)}")
    pairs: list[tuple[str | None, ast.expr]] = list(zip(parameters, node.args, strict=False))
    pairs += [(keyword.arg, keyword.value) for keyword in node.keywords]
    arguments = {}
    for name, value in pairs:
        if name is None:
            raise ValueError("** is not read in a call")
        if name in arguments:
            raise ValueError(f"the argument {name} is given twice")
        try:
            arguments[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise ValueError(f"the argument {name} is not a literal") from None
    return arguments


class _Locator:
    """Turns the lines and byte columns of ``ast`` into character spans of the whole turn."""

    def __init__(self, source: str, offset: int):
        self._lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)?", source)  # as Python's parser counts them
        self._starts = [offset]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> Span:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self._index(node.lineno, node.col_offset), self._index(end_line, end_column)

    def _index(self, line: int, column: int) -> int:
        if line > len(self._lines):
            return self._starts[-1]
        prefix = self._lines[line - 1].encode("utf-8", "surrogatepass")[:column]
        return self._starts[line - 1] + len(prefix.decode("utf-8", "ignore"))
