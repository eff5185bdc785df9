from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_file, check_writable, file_name


def test_the_name_appears_only_when_all_is_written(tmp_path):
    path = tmp_path / "out.json"
    with atomic_write(path) as file:
        file.write(b"half")
        assert not path.exists()
    assert path.read_bytes() == b"half"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    with pytest.raises(failure), atomic_write(path) as file:
        file.write(b"new")
        raise failure
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_full_disk_is_one_clear_line(tmp_path):
    with (
        pytest.raises(TilewrightError, match=r"cannot write .*No space left"),
        atomic_write(tmp_path / "out.json"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_when_the_last_bytes_are_written_keeps_nothing(tmp_path):
    """Closing writes what is in the buffer, and fails once more."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tilewright.files import atomic_write\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "with atomic_write(Path(sys.argv[1])) as file:\n"
        "    for _ in range(30): file.write(bytes(5_000))\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert "TilewrightError: cannot write" in child.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_the_program_prints_to_is_written_into(tmp_path):
    """`--json /dev/stdout >> FILE` must not replace the file that the shell opened."""
    code = (
        "from pathlib import Path; from tilewright.files import atomic_write, check_writable\n"
        "path = Path('/dev/stdout'); check_writable(path)\n"
        "with atomic_write(path) as file: file.write(b'more')\n"
    )
    out = tmp_path / "out"
    out.write_text("precious, ")
    with out.open("a") as stdout:
        subprocess.run([sys.executable, "-c", code], stdout=stdout, check=True)
    assert out.read_text() == "precious, more"


def test_places_that_cannot_be_written(tmp_path):
    for path in (tmp_path / "no" / "out.json", tmp_path):
        with pytest.raises(TilewrightError, match="cannot write"):
            check_writable(path)
    with (
        pytest.raises(TilewrightError, match="cannot write"),
        atomic_write(tmp_path / "no" / "out.json"),
    ):
        pass


def test_what_is_not_a_plain_file_is_written_into_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        content = reader.submit(pipe.read_bytes)
        check_writable(pipe)
        with atomic_write(pipe) as file:
            file.write(b"through")
        assert content.result(timeout=10) == b"through"
    assert pipe.is_fifo()


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    with atomic_write(tmp_path / "link.json") as file:
        file.write(b"new")
    assert (tmp_path / "real.json").read_text() == "new"
    assert (tmp_path / "link.json").is_symlink()


def test_names_too_long_for_the_system_are_refused_first(tmp_path):
    with pytest.raises(TilewrightError, match="File name too long"):
        check_writable(tmp_path / ("x" * 250))
    with pytest.raises(TilewrightError, match="too long"):
        check_file(tmp_path / ("x" * 5000))


def test_only_plain_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "pipe", "not a plain file"), (tmp_path, "is a folder"),
        (tmp_path / "none", "No such file"),
    ):  # fmt: skip
        with pytest.raises(TilewrightError, match=words):
            check_file(path)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755, 0o400])
def test_what_is_replaced_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(mode)
    with atomic_write(path) as file:
        # Nobody may read half of it who may not read the whole.
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
        file.write(b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_name_can_be_said_otherwise_for_a_file():
    assert file_name("ece408-2017") == "ece408-2017"
    assert file_name("../../x") == "x"
    assert file_name("/etc/passwd") == "etc-passwd"
    assert file_name("My net, v1.2") == "My-net-v1.2"
    assert file_name("...") == "network"
    for name in ("..", ".hidden", "a/b", "a\0b", "a\nb", "~", "C:\\x"):
        assert Path(file_name(name)).name == file_name(name)
        assert not file_name(name).startswith(".")
