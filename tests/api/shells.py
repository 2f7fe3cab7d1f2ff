"""Makes the blocking shells from the async ones: `python -m tests.api.shells`. A test compares them."""

import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tenure"
SHELLS = {
    "clients/client.py": "clients/sync_client.py",
    "testing/cluster.py": "testing/sync_cluster.py",
}
_CHANGES = [
    (r"\basync def __aenter__", "def __enter__"),
    (r"\basync def __aexit__", "def __exit__"),
    (r"\basync def ", "def "),
    (r"\basync with ", "with "),
    (r"\bawait ", ""),
    (r"\bAsyncHome\b", "SyncHome"),
    (r"(?<![\w.])Client\b", "SyncClient"),
    (r"\btenure\.Client\b", "tenure.SyncClient"),
    (r"(?<![\w.])Cluster\b", "SyncCluster"),
    (r"\btenure\.testing\.Cluster\b", "tenure.testing.SyncCluster"),
    (r"\bclients\.client\b", "clients.sync_client"),
    (r"for trio and for asyncio", "for code that blocks"),
    (r"\bMany tasks\b", "Many threads"),
]


def made_from(path: str, text: str) -> str:
    """The blocking form of an async shell."""
    head, separator, rest = text.partition('"""\n\n')
    _, _, blocking = head.partition("\n\nBlocking: ")
    for pattern, replacement in _CHANGES:
        rest = re.sub(pattern, replacement, rest)
    assert blocking, f"{path}: the docstring must end with a paragraph that begins with 'Blocking: '"
    return f'"""{blocking}\n\nMade from {Path(path).name} by tests/api/shells.py: edit that one.\n{separator}{rest}'


def main() -> None:
    for path, made in SHELLS.items():
        if (SOURCE / path).exists():
            (SOURCE / made).write_text(made_from(path, (SOURCE / path).read_text()))
            subprocess.run(["ruff", "check", "--fix", "--quiet", "--select", "I", str(SOURCE / made)], check=True)
            subprocess.run(["ruff", "format", "--quiet", str(SOURCE / made)], check=True)


if __name__ == "__main__":
    main()
