"""Fetching, against a server on this machine that breaks off, knows ranges, or does not."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.copies import Copy, ready
from tests.data.test_cifar10 import records
from tests.data.test_fashion_mnist import LABELS, idx
from tilewright.data import cifar10, fetch
from tilewright.errors import TilewrightError

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.break_after: int | None = None
        self.knows_ranges = True
        self.pause_seconds = 0.0

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        content = self.server.files.get(self.path.lstrip("/"))
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if asked and self.server.knows_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        time.sleep(self.server.pause_seconds)
        cut, self.server.break_after = self.server.break_after, None
        self.wfile.write(content[start:] if cut is None else content[start : start + cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield running
        running.shutdown()


def download(server, name, content):
    server.files[name] = content
    return fetch.Download(f"{server.address}/{name}", f"md5:{hashlib.md5(content).hexdigest()}")


def test_fetches_with_progress_and_not_twice(server, tmp_path):
    wanted = (download(server, "a.gz", CONTENT),)
    seen = []
    fetch.fetch(tmp_path, lambda *now: seen.append(now), wanted)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT
    assert seen[-1] == ("a.gz", len(CONTENT), len(CONTENT))
    fetch.fetch(tmp_path, lambda *now: None, wanted)
    assert len(server.ranges) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.gz"]


def test_goes_on_where_it_broke_off(server, tmp_path):
    wanted = (download(server, "a.gz", CONTENT),)
    server.break_after = 600_000
    with pytest.raises(TilewrightError, match="run the command again to continue"):
        fetch.fetch(tmp_path, lambda *now: None, wanted)
    assert not (tmp_path / "a.gz").exists()
    kept = (tmp_path / "a.gz.part").stat().st_size
    assert kept > 0
    fetch.fetch(tmp_path, lambda *now: None, wanted)
    assert server.ranges == [None, f"bytes={kept}-"]
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [CONTENT[:1000], CONTENT, CONTENT + b"x"])
def test_starts_over_where_it_cannot_go_on(server, tmp_path, part):
    wanted = (download(server, "a.gz", CONTENT),)
    (tmp_path / "a.gz.part").write_bytes(part)
    server.knows_ranges = len(part) >= len(CONTENT)  # then it answers 416
    fetch.fetch(tmp_path, lambda *now: None, wanted)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_two_processes_may_fetch_at_once(server, tmp_path):
    server.pause_seconds = 0.5  # each would still be waiting when the other begins
    wanted = download(server, "a.gz", CONTENT)

    def work(pipe):
        ready(pipe)
        fetch.fetch(tmp_path, lambda *now: None, (wanted,))

    copies = [Copy(work) for _ in range(2)]
    for copy in copies:
        copy.go()
    assert [copy.said() for copy in copies] == [[], []]
    assert (tmp_path / "a.gz").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["a.gz"]
    assert len(server.ranges) == 1


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    right = download(server, "a.gz", CONTENT)
    server.files["a.gz"] = CONTENT[::-1]
    with pytest.raises(TilewrightError, match="does not have the checksum"):
        fetch.fetch(tmp_path, lambda *now: None, (right,))
    assert not list(tmp_path.iterdir())


def test_no_server_and_no_file_are_one_line(server, tmp_path):
    gone = fetch.Download(f"{server.address}/gone.gz", "md5:0")
    with pytest.raises(TilewrightError, match=r"gone\.gz: 404") as error:
        fetch.fetch(tmp_path, lambda *now: None, (gone,))
    assert "\n" not in str(error.value)
    closed = fetch.Download("http://127.0.0.1:9/a.gz", "md5:0")
    with pytest.raises(TilewrightError, match="cannot fetch http://127"):
        fetch.fetch(tmp_path, lambda *now: None, (closed,))


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TilewrightError, match="cannot create"):
        fetch.fetch(tmp_path / "file" / "data", lambda *now: None, ())


def tar(names):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name in names:
            data = records(2).tobytes() if name.endswith(".bin") else b"text"
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def test_cifar10_is_unpacked(server, tmp_path):
    batches = [*cifar10.TRAINING, cifar10.TEST]
    wanted = (download(server, "cifar.tar.gz", tar([*batches, "readme.html"])),)
    fetch.fetch(tmp_path, lambda *now: None, wanted)
    assert len(cifar10.read_folder(tmp_path)) == 10
    assert {path.name for path in tmp_path.iterdir()} == {*batches, "cifar.tar.gz"}


def test_an_archive_that_lacks_a_batch_is_named(server, tmp_path):
    wanted = (download(server, "cifar.tar.gz", tar(cifar10.TRAINING)),)
    with pytest.raises(TilewrightError, match=r"test_batch\.bin not in it"):
        fetch.fetch(tmp_path, lambda *now: None, wanted)


def test_the_addresses_are_the_publishers_and_all_have_checksums():
    for name, downloads in fetch.DOWNLOADS.items():
        for entry in downloads:
            assert re.fullmatch(r"md5:[0-9a-f]{32}", entry.checksum), name
    assert fetch.DOWNLOADS["cifar10"][0].url.startswith("https://www.cs.toronto.edu/~kriz/")


def test_a_fetched_file_reads_as_data(server, tmp_path):
    from tilewright.data import fashion_mnist

    packed = gzip.compress(idx(LABELS))
    fetch.fetch(tmp_path, lambda *now: None, (download(server, "labels.gz", packed),))
    labels = fashion_mnist.read_idx(tmp_path / "labels.gz", dimensions=1)
    assert labels.tolist() == LABELS.tolist()
