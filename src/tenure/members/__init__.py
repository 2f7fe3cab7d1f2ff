"""Members: Hazelcast JVMs that Tenure fetches, configures and runs as child processes."""

from tenure.members.check import Standard, Verdict, check_members, judge_count
from tenure.members.config import member_attributes, member_config
from tenure.members.errors import (
    ChecksumMismatch,
    JarUnavailable,
    MemberDidNotStart,
    MemberError,
    NoJava,
    PortTaken,
    SettingsMismatch,
    StoodAlone,
    TooLittleMemory,
    WrongVersion,
)
from tenure.members.heap import watch_heap
from tenure.members.jar import Progress, fetch_jar, jar_fetched, rich_progress
from tenure.members.java import Java, find_java
from tenure.members.leftovers import marked, remove_leftovers
from tenure.members.log_size import keep_log_small
from tenure.members.member import (
    Member,
    free_port,
    logs_folder,
    open_member,
    open_members,
    prepare,
    settle,
    start_member,
)
from tenure.members.settings import HAZELCAST_VERSION, MemberSettings, half_of_the_processors

__all__ = [
    "HAZELCAST_VERSION",
    "ChecksumMismatch",
    "JarUnavailable",
    "Java",
    "Member",
    "MemberDidNotStart",
    "MemberError",
    "MemberSettings",
    "NoJava",
    "PortTaken",
    "Progress",
    "SettingsMismatch",
    "Standard",
    "StoodAlone",
    "TooLittleMemory",
    "Verdict",
    "WrongVersion",
    "check_members",
    "fetch_jar",
    "find_java",
    "free_port",
    "half_of_the_processors",
    "jar_fetched",
    "judge_count",
    "keep_log_small",
    "logs_folder",
    "marked",
    "member_attributes",
    "member_config",
    "open_member",
    "open_members",
    "prepare",
    "remove_leftovers",
    "rich_progress",
    "settle",
    "start_member",
    "watch_heap",
]
