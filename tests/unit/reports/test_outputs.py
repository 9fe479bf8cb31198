"""Whether a result can be written is known before it is computed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from innet.core.errors import InputError
from innet.reports.outputs import check_writable


def test_nothing_is_left_and_nothing_is_changed(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").write_text("kept")
    check_writable(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "kept"


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*absent/x\.npy: No such file"):
        check_writable(tmp_path / "absent" / "x.npy")
    with pytest.raises(InputError, match=r"cannot write .*: Is a directory"):
        check_writable(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Not a directory"):
        check_writable(tmp_path / "file" / "x.npy")


def test_a_pipe_is_not_tried_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")  # opening it would wait for a reader
