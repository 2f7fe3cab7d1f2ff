"""How a member's Java is called."""

from pathlib import Path

import pytest

from tenure.members import MemberSettings
from tenure.members.archive import Archive
from tenure.members.java import Java
from tenure.members.launch import LARGE_HEAP_MIB, jvm_command, release, spawn

JAVA, JAR = Java(Path("/java/bin/java"), "21.0.1", 21), Path("hazelcast-5.7.0.jar")


def command(settings: MemberSettings, folder: Path) -> list[str]:
    return jvm_command(settings, JAVA, JAR, Path("config.yaml"), Archive(folder, JAVA, JAR))


@pytest.mark.parametrize(("heap_mib", "is_small"), [(512, False), (LARGE_HEAP_MIB, True), (3072, True)])
def test_large_heaps_have_a_small_young_generation(heap_mib: int, is_small: bool, tmp_path: Path) -> None:
    options = command(MemberSettings(heap_max_mib=heap_mib), tmp_path)
    assert f"-Xmx{heap_mib}m" in options
    assert any(option.startswith("-XX:MaxNewSize=") for option in options) is is_small


def test_who_knows_better_has_the_last_word(tmp_path: Path) -> None:
    options = command(MemberSettings(heap_max_mib=3072, jvm_options=("-XX:MaxNewSize=512m",)), tmp_path)
    assert [option for option in options if option.startswith("-XX:MaxNewSize=")][-1] == "-XX:MaxNewSize=512m"


def test_io_threads_are_few_where_processors_are(tmp_path: Path) -> None:
    options = command(MemberSettings(processors=frozenset({1})), tmp_path)
    assert "-Dhazelcast.io.thread.count=1" in options


def test_a_member_hears_nothing_that_the_environment_says_to_hazelcast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hazelcast takes it above the configuration: another name, another port, other members."""
    for name, value in {"HZ_CLUSTERNAME": "other", "hz_network_port_port": "8723", "NOT_HZ_AT_ALL": "1"}.items():
        monkeypatch.setenv(name, value)
    process = spawn(["env"], tmp_path / "log")
    assert process.wait(10) == 0
    release(process)
    heard = (tmp_path / "log").read_text()
    assert "NOT_HZ_AT_ALL=1" in heard
    assert "HZ_CLUSTERNAME" not in heard
    assert "hz_network" not in heard
    assert "HZ_CLUSTERNAME, hz_network_port_port" in "".join(capsys.readouterr())
