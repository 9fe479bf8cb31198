"""Files that are written whole or not at all, and why there is none to read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from innet.core.errors import InputError
from innet.core.files import atomic_write, missing


def fill_up(place):
    """Writes half of a file before the disk is full."""
    place.write_text("half")
    raise OSError(28, "No space left on device")


def be_interrupted(place):
    place.write_text("half")
    raise KeyboardInterrupt


def test_a_full_disk_leaves_what_was_there_and_nothing_new(tmp_path):
    (tmp_path / "old").write_text("kept")
    for name in ("old", "new"):
        said = f"cannot write .*/{name}: the disk is full"
        with pytest.raises(InputError, match=said), atomic_write(tmp_path / name) as place:
            fill_up(place)
    assert [each.name for each in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "kept"


def test_an_interruption_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "new") as place:
        be_interrupted(place)
    assert not list(tmp_path.iterdir())


def test_two_at_the_same_time_do_not_mix(tmp_path):
    both = threading.Barrier(2, timeout=10)

    def write(text):
        with atomic_write(tmp_path / "record") as place:
            place.write_text(text[:1])
            both.wait()
            place.write_text(text)
            both.wait()

    writers = [threading.Thread(target=write, args=(text,)) for text in ("first", "other")]
    for each in writers:
        each.start()
    for each in writers:
        each.join(10)
    assert [each.name for each in tmp_path.iterdir()] == ["record"]
    assert (tmp_path / "record").read_text() in ("first", "other")


def test_permissions_are_kept(tmp_path):
    (tmp_path / "file").touch(mode=0o600)
    with atomic_write(tmp_path / "file") as place:
        place.write_text("new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_link_leads_to_what_is_written(tmp_path, there):
    (tmp_path / "link").symlink_to("file")
    if there:
        (tmp_path / "file").touch()
    with atomic_write(tmp_path / "link") as place:
        place.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_name_may_be_as_long_as_names_can_be(tmp_path):
    with atomic_write(tmp_path / ("x" * 255)) as place:
        place.write_text("")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_pipe_is_written_to_itself(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    heard = []
    reader = threading.Thread(
        target=lambda: heard.append((tmp_path / "pipe").read_text()), daemon=True
    )
    reader.start()
    with atomic_write(tmp_path / "pipe") as place:
        place.write_text("told")
    reader.join(10)
    assert heard == ["told"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_in_a_folder_that_takes_no_new_ones(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)  # to root every folder is open
    with atomic_write(tmp_path / "file") as place:
        assert place == tmp_path / "file"


def test_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "absent" / "file"
    said = f"cannot write {path}: No such file"
    with pytest.raises(InputError, match=said), atomic_write(path) as place:
        place.write_text("")


def test_why_there_is_no_file_to_read(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert missing(tmp_path / "file") is None
    assert missing(tmp_path) == "not a file"
    assert missing(tmp_path / "absent") == missing(tmp_path / "file" / "x") == "no such file"
    assert missing(tmp_path / ("x" * 256)) == "file name too long"
    assert "null" in (missing("a\0b") or "")

    def closed(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", closed)  # to root every folder is open
    assert missing("closed/file") == "permission denied"
