"""Files that mean harm, or are broken: each is one line, exit code 2, and little memory."""

from __future__ import annotations

import gzip
import json
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli import main

FLAT = {"name": "flat", "input": {"shape": [1, 2, 2]}, "layers": [{"type": "flatten"}]}
DENSE = {**FLAT, "layers": [{"type": "fully_connected", "outputs": 1}]}
MOST_BYTES = 30e6
MUCH = bytes(50_000_000)


@pytest.fixture
def refused(capsys):
    def check(*arguments: str | Path) -> str:
        tracemalloc.start()
        code = main([str(argument) for argument in arguments])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        error = capsys.readouterr().err
        assert code == 2
        assert error.count("\n") == 1, error
        assert "internal error" not in error
        assert peak < MOST_BYTES
        return error

    return check


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "NaN", "[1", '{"name": "a", "name": "b", "input": {}, "layers": []}',
        *(nested(depth) for depth in (500, 990, 1000, 100_000)),
        *(f'{{"name": {nested(depth)}, "input": {{}}, "layers": []}}' for depth in (500, 990)),
        *(
            f'{{"name": "n", "input": {{"shape": [1, 4, 4]}}, "layers": [{{"type": "max_pool", '
            f'"size": {value}}}]}}'
            for value in (nested(900), '"' + "x" * 10**6 + '"', "1" + "0" * 5000, "{}", "true")
        ),
        *(
            json.dumps({**FLAT, "input": {"shape": shape}})
            for shape in ([1, 4, -4], [1, 4, 0], [1, 1e9, 4], [1, None, 4], [[1], 4, 4], "144", 7)
        ),
        *(
            json.dumps({**FLAT, "input": {"shape": [1, 4, 4], "scale": scale}})
            for scale in (float("nan"), float("inf"), 10**400, "1", None, "x" * 10**6)
        ),
        *(json.dumps({**FLAT, "name": n}) for n in ("", "a\x1b[2J", "\ud800", "x" * 10**6, 7)),
        json.dumps({**FLAT, "layers": [{"type": "relu", "x" * 10**6: 1}]}),
        json.dumps({**FLAT, "layers": [{"type": "relu"}] * 100_000}),
    ],
    ids=lambda text: f"{text[:40]}...{len(text)}",
)  # fmt: skip
def test_descriptions(text, tmp_path, refused):
    (tmp_path / "n.json").write_text(text)
    assert "n.json" in refused("show", tmp_path / "n.json")


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"\x80", b"\0" * 100])
def test_descriptions_that_are_no_text(content, tmp_path, refused):
    (tmp_path / "n.json").write_bytes(content)
    assert "n.json: not JSON" in refused("show", tmp_path / "n.json")


def tensors(**entries: tuple[str, list[int], int, int]) -> bytes:
    document = {"__metadata__": {"tilewright.network": json.dumps(DENSE)}}
    for name, (dtype, shape, start, end) in entries.items():
        document[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(document).encode()
    return struct.pack("<Q", len(header)) + header


WEIGHT, BIAS = ("F32", [1, 4], 0, 16), ("F32", [1], 16, 20)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\1\2", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 10**6) + b"{}",
        struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2) + b"\xff\xfe",
        struct.pack("<Q", 200_000) + nested(100_000).encode(),
        tensors(**{"fc.weight": WEIGHT, "fc.bias": ("F32", [1], 12, 16)}) + bytes(16),
        tensors(**{"fc.weight": WEIGHT, "fc.bias": ("F32", [1], 20, 24)}) + bytes(24),
        tensors(**{"fc.weight": WEIGHT, "fc.bias": BIAS}) + bytes(19),
        tensors(**{"fc.weight": WEIGHT, "fc.bias": BIAS}) + b"\xff" * 20,
        tensors(**{"fc.weight": ("F32", [2**40, 2**40], 0, 16)}) + bytes(16),
        tensors(**{"fc.weight": ("F32", [1, -4], 0, 16)}) + bytes(16),
        tensors(**{"fc.weight": ("BF16", [1, 4], 0, 8), "fc.bias": ("BF16", [1], 8, 10)})
        + bytes(10),
        tensors(**{"fc.weight": ("I32", [1, 4], 0, 16), "fc.bias": BIAS}) + bytes(20),
        tensors(**{f"t{i}": ("U8", [1], i, i + 1) for i in range(11_000)}) + bytes(11_000),
    ],
    ids=lambda content: f"{content[8:40]!r}...{len(content)}",
)  # fmt: skip
def test_weights(content, tmp_path, refused):
    (tmp_path / "w.safetensors").write_bytes(content)
    (tmp_path / "n.json").write_text(json.dumps(DENSE))
    np.savez(tmp_path / "x.npz", images=np.zeros((1, 1, 2, 2), np.uint8))
    given = ("run", "--data", tmp_path / "x.npz", "--net")
    refused(*given, tmp_path / "w.safetensors")
    refused(*given, tmp_path / "n.json", "--weights", tmp_path / "w.safetensors")


def test_weights_larger_than_any_network(tmp_path, refused):
    with (tmp_path / "w.safetensors").open("wb") as file:
        file.truncate(5 << 30)  # all hole
    assert "larger than the" in refused("show", tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    "text",
    ["", "4 1\n1\n", "4 1\nnan\n1\n1\n1\n1\n", "4 1\n1e999\n1\n1\n1\n1\n", "4 1\nx\n1\n1\n1\n1\n",
     "1 4\n1\n1\n1\n1\n1\n", "4 1\n" + "1\n" * 100, "4 1\n" + "9" * 10**6 + "\n1\n1\n1\n1\n"],
)  # fmt: skip
def test_snapshots(text, tmp_path, refused):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "layer1_fc.txt").write_text(text)
    (tmp_path / "n.json").write_text(json.dumps(DENSE))
    np.savez(tmp_path / "x.npz", images=np.zeros((1, 1, 2, 2), np.uint8))
    error = refused(
        "run", "--net", tmp_path / "n.json", "--weights", tmp_path / "s", "--data",
        tmp_path / "x.npz",
    )  # fmt: skip
    assert "layer1_fc.txt" in error


def test_a_snapshot_that_is_all_hole(tmp_path, refused):
    (tmp_path / "s").mkdir()
    with (tmp_path / "s" / "layer1_fc.txt").open("wb") as file:
        file.truncate(50 << 30)
    (tmp_path / "n.json").write_text(json.dumps(DENSE))
    np.savez(tmp_path / "x.npz", images=np.zeros((1, 1, 2, 2), np.uint8))
    given = ("--weights", tmp_path / "s", "--data", tmp_path / "x.npz")
    assert "too large for the 5 numbers" in refused("run", "--net", tmp_path / "n.json", *given)


def npy(shape: object, descr: object = "|u1", body: bytes = bytes(4), version: int = 1) -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + body


GOOD = npy((1, 2, 2))


def header_of(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    "members",
    [
        {}, {"images": b""}, {"images": b"\x93NUMPY\x09\x00aa"}, {"images": GOOD[:20]},
        {"images": GOOD[:-1]}, {"images": GOOD + b"x"}, {"images": npy((1, 2, 2), version=3)},
        *({"images": npy(s)} for s in ((-1, 2, 2), (0, 2, 2), (2**62, 2**62, 2), (True, 2, 2),
                                       ("1", 2, 2), (1.0, 2, 2), (), (4,), (1,) * 30)),
        {"images": npy((1,), "|O", b"\x80\x04.")}, {"images": npy((1, 2, 2), [("a", "u1")])},
        {"images": npy((1, 2, 2), "(2,)u1", bytes(8))}, {"images": npy((1, 2, 2), "|V1000000000")},
        {"images": npy((1, 2, 2), "<f4", struct.pack("<4f", 1, 2, 3, float("inf")))},
        {"images": header_of(b"__import__('os').abort()")},
        {"images": header_of(b"[" * 4000 + b"]" * 4000)},
        {"images": GOOD, "labels": npy((1,), "|O", b"x")},
        {"images": GOOD, "labels": npy((1, 1), "<i8", bytes(8))},
        {"images": GOOD, "labels": npy((1,), "<i8", struct.pack("<q", -1))},
    ],
    ids=lambda members: f"{str(members)[:100]}",
)  # fmt: skip
def test_arrays(members, tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    assert "a.npz" in refused("data", "check", tmp_path / "a.npz")


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_arrays_that_unpack_to_more_than_they_say(packing, tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", packing) as archive:
        archive.writestr("images.npy", npy((1, 2, 2), body=bytes(8_000_000)))
    refused("data", "check", tmp_path / "a.npz")


def test_an_archive_whose_directory_lies(tmp_path, refused):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", npy((2**29, 2, 2)))
    content = bytearray(path.read_bytes())
    place = content.rfind(b"PK\x01\x02") + 24
    content[place : place + 4] = struct.pack("<I", len(GOOD) + 2**31)
    path.write_bytes(content)
    refused("data", "check", path)


def idx(*shape: int) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


PAIR, LABELS = idx(1, 2, 2) + bytes(4), idx(1) + b"\1"


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (b"", LABELS), (PAIR[:-1], LABELS), (PAIR + b"x", LABELS), (idx(1), LABELS),
        (idx(1, 2**32 - 1, 2**32 - 1) + bytes(4), LABELS), (idx(0, 2, 2), idx(0)),
        (idx(2**32 - 1, 2, 2), idx(2**32 - 1)), (idx(1, 0, 2), LABELS), (PAIR, b""),
        (PAIR, idx(1) + b"\xff"), (PAIR, idx(2) + b"\1\1"), (b"\x1f\x8b" + PAIR, LABELS),
        (gzip.compress(PAIR)[:-5], LABELS), (gzip.compress(b"") * 1000, LABELS),
        (b"\x1f\x8b\x08\x08" + b"n" * 10**5, LABELS),
    ],
    ids=range(15),
)  # fmt: skip
def test_idx_files(images, labels, tmp_path, refused):
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(images)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(labels)
    assert "t10k-" in refused("data", "check", tmp_path)


def test_an_idx_file_that_unpacks_to_much(tmp_path, refused):
    test_idx_files(gzip.compress(idx(1, 2, 2) + MUCH, 1), LABELS, tmp_path, refused)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, *more: bytes) -> bytes:
    start = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(13 * 4)))
    return b"\x89PNG\r\n\x1a\n" + start + b"".join(more) + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.png", b""), ("a.png", png(4, 4)[:40]), ("a.png", png(30_000, 30_000)),
        ("a.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n"), ("a.png", b"%PDF-1.4"),
        ("a.ppm", b"P6 100000 100000 255\n"), ("a.ppm", b"P6 -1 -1 255\n"),
        ("a.pgm", b"P5 0 0 9\n"),
        ("a.ppm", b"P6 " + b"1" * 10**6), ("a.bmp", b"BM" + bytes(50)), ("a.jpg", b"\xff\xd8\xff"),
        ("a.gif", b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\2\1\0;"),
        ("a.webp", b"RIFF\xff\xff\xff\x7fWEBPVP8 " + bytes(20)),
    ],
    ids=range(13),
)  # fmt: skip
def test_pictures(name, content, tmp_path, refused):
    (tmp_path / name).write_bytes(content)
    assert name in refused("data", "check", tmp_path)


def test_a_picture_whose_words_unpack_to_much(tmp_path, refused):
    words = chunk(b"zTXt", b"a\0\0" + zlib.compress(MUCH, 1))
    test_pictures("a.png", png(4, 4, words), tmp_path, refused)


def test_links_that_lead_to_themselves(tmp_path, refused):
    for name in ("a.npz", "a.json", "a.safetensors", "a"):
        (tmp_path / name).symlink_to(tmp_path / name)
    refused("data", "check", tmp_path / "a.npz")
    refused("show", tmp_path / "a.json")
    refused("show", tmp_path / "a.safetensors")
    refused("run", "--data", tmp_path / "a.npz")
    refused("run", "--weights", tmp_path / "a")
    refused("run", "--net", tmp_path / "a.json")
    assert "Too many levels" in refused("run", "--json", tmp_path / "a")
    assert "Too many levels" in refused("ladder", "--json", tmp_path / "a")


def test_a_good_one_of_each_still_reads(tmp_path):
    (tmp_path / "n.json").write_text(json.dumps(FLAT))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", GOOD)
    for folder in ("idx", "pictures"):
        (tmp_path / folder).mkdir()
    (tmp_path / "idx" / "t10k-images-idx3-ubyte").write_bytes(PAIR)
    (tmp_path / "idx" / "t10k-labels-idx1-ubyte").write_bytes(LABELS)
    (tmp_path / "pictures" / "a.png").write_bytes(png(4, 4))
    assert main(["show", str(tmp_path / "n.json")]) == 0
    for name in ("a.npz", "idx", "pictures"):
        assert main(["data", "check", str(tmp_path / name)]) == 0
