"""The texts that go to an external command and come back.

    to it:     key: input.txt:0\\nvalue: hello world\\n
    from it:   forward\\nkey: input.txt:0\\nvalue: hi world\\n     or     filter\\n

One answer for each record, in the order of the records.
"""

from collections.abc import Sequence

from tenure.jobs.pipelines.errors import BadRecord, CommandFailed
from tenure.jobs.pipelines.records import Record

__all__ = ["Answer", "asked", "parse"]

Answer = Record | None
"""What a record becomes; None: it is filtered out."""


def asked(records: Sequence[Record]) -> bytes:
    """The text for some records. Raises `BadRecord` for one that can't be written in it."""
    text = "".join([f"key: {key}\nvalue: {value}\n" for key, value in records])
    if text.count("\n") != 2 * len(records):
        key, value = next((key, value) for key, value in records if "\n" in key or "\n" in value)
        raise BadRecord(f"{key}: a command reads lines, and there is a line break in this record: {value!r:.80}")
    return text.encode(errors="surrogatepass")


def parse(data: bytes) -> tuple[list[Answer], int]:
    """The whole answers at the beginning of the data, and how many bytes they are. Raises `BadAnswer`."""
    end = data.rfind(b"\n") + 1
    lines = data[:end].decode(errors="replace").split("\n")
    lines.pop()
    answers: list[Answer] = []
    at, known = 0, len(lines)
    while at < known:
        verdict = lines[at]
        if verdict == "forward":
            if at + 2 >= known:
                break
            key, value = lines[at + 1], lines[at + 2]
            if key[:5] != "key: " or value[:7] != "value: ":
                raise BadAnswer(answers, "\n".join(lines[at : at + 3]))
            answers.append((key[5:], value[7:]))
            at += 3
        elif verdict == "filter":
            answers.append(None)
            at += 1
        else:
            raise BadAnswer(answers, verdict)
    rest = sum(len(line.encode()) + 1 for line in lines[at:]) if at < known else 0
    return answers, end - rest


class BadAnswer(CommandFailed):
    """What came is no answer. `answers` are those before it."""

    def __init__(self, answers: list[Answer], text: str) -> None:
        super().__init__(text)
        self.answers, self.text = answers, text
