"""The log of innet simple-switch: levels, files, rotation."""

from __future__ import annotations

import re

import pytest

from innet.core.errors import InputError
from innet.simple_switch.log import Log


def texts(path):
    return [line.rsplit("] ", 1)[1] for line in path.read_text().splitlines()]


def test_lines_look_like_simple_switchs(tmp_path):
    log = Log("debug", path=str(tmp_path / "log"))
    log("debug", "first")
    log("trace", "too little")
    log("error", "last\nof two lines")
    log.close()
    text = (tmp_path / "log.txt").read_text()
    head = r"\[\d\d:\d\d:\d\d\.\d{3}\] \[bmv2\] \[%s\] \[thread \d+\] "
    assert re.fullmatch(f"{head % 'D'}first\n{head % 'E'}last\nof two lines\n", text)


@pytest.mark.parametrize(("level", "takes"), [("trace", 5), ("info", 3), ("error", 1), ("off", 0)])
def test_levels_leave_lines_out(tmp_path, level, takes):
    log = Log(level, path=str(tmp_path / "log"))
    for each in ("trace", "debug", "info", "warn", "error"):
        assert log.takes(each) == (each in ("trace", "debug", "info", "warn", "error")[5 - takes :])
        log(each, each)
    log.close()
    assert len(texts(tmp_path / "log.txt")) == takes


def test_full_files_are_renamed_and_the_oldest_goes(tmp_path):
    log = Log(path=str(tmp_path / "log"), most_bytes=200, most_files=2)
    for number in range(20):
        log("info", f"{number:04}")
    log.close()
    files = {each.name: texts(each) for each in tmp_path.iterdir()}
    assert sorted(files) == ["log.1.txt", "log.2.txt", "log.txt"]
    kept = files["log.2.txt"] + files["log.1.txt"] + files["log.txt"]
    assert kept == [f"{number:04}" for number in range(20)][-len(kept) :]
    assert all(each.stat().st_size <= 200 for each in tmp_path.iterdir())


def test_a_file_that_is_there_is_continued(tmp_path):
    for text in ("before", "after"):
        log = Log(path=str(tmp_path / "log"))
        log("info", text)
        log.close()
    assert texts(tmp_path / "log.txt") == ["before", "after"]


def test_a_file_that_cannot_be_is_named(tmp_path):
    with pytest.raises(InputError, match=r"--log-file .*No such file"):
        Log(path=str(tmp_path / "nowhere" / "log"))


def test_a_full_disk_ends_the_log_and_not_the_switch(tmp_path):
    (tmp_path / "log.txt").symlink_to("/dev/full")
    log = Log(path=str(tmp_path / "log"))
    log("info", "lost")
    log.flush()
    assert not log.takes("error")
    log("info", "lost, too")
    log.close()
