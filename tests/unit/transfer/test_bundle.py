"""Bundles: what goes in comes out, and what is hostile or damaged changes nothing."""

import asyncio
import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.transfer.bundle import Source, _pax, read_bundle, write_bundle
from shared.transfer.errors import TransferError
from shared.transfer.members import BLOCK, COUNT_KEY, INCOMING, SHA_KEY, check_link, check_name


async def packed(sources):
    return b"".join([chunk async for chunk in write_bundle(sources)])


async def portions(data, size=1000):
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def receive(data, root, size=1000, **options):
    return await read_bundle(portions(data, size), root, **options)


def listing(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def honest(*members, count=None, last_sum=None):
    """A stream made by hand: (TarInfo, content) members with right checksums."""
    out = io.BytesIO()
    for info, content in members:
        info.size = len(content)
        out.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        if info.isreg():
            out.write(content + bytes(-len(content) % BLOCK))
            out.write(_pax(tarfile.XGLTYPE, {SHA_KEY: last_sum or hashlib.sha256(content).hexdigest()}))
    out.write(_pax(tarfile.XGLTYPE, {COUNT_KEY: str(len(members) if count is None else count)}))
    out.write(bytes(2 * BLOCK))
    return out.getvalue()


def member(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "from"
    (top / "data" / "deep").mkdir(parents=True)
    (top / "script.sh").write_text("#!/bin/sh\n")
    (top / "script.sh").chmod(0o755)
    (top / "data" / "empty").write_bytes(b"")
    (top / "data" / "deep" / ("n" * 200)).write_bytes(os.urandom(700_001))
    (top / "data" / "latest").symlink_to("deep")
    (top / "data" / "bad\udcff name ü").write_text("odd")
    return top


@pytest.fixture
def root(tmp_path):
    where = tmp_path / "to"
    where.mkdir()
    return where


@pytest.mark.parametrize("size", [1, 511, 1 << 20])
async def test_files_directories_modes_and_inner_links_arrive(tree, root, size):
    entries = await receive(
        await packed([Source(tree / "script.sh", "condor_exec.exe"), Source(tree / "data", "data")]), root, size
    )
    assert (root / "condor_exec.exe").stat().st_mode & 0o777 == 0o755
    assert os.readlink(root / "data" / "latest") == "deep"
    for name in ("empty", "deep/" + "n" * 200, "bad\udcff name ü"):
        assert (root / "data" / name).read_bytes() == (tree / "data" / name).read_bytes()
    assert {entry.kind for entry in entries} == {"file", "directory", "link"}
    assert not [name for name in listing(root) if name.startswith(INCOMING)]


async def test_the_tar_program_reads_a_bundle(tree):
    data = await packed([Source(tree / "script.sh", "run"), Source(tree / "data" / "empty", "e")])
    listed = await asyncio.to_thread(subprocess.run, ["tar", "-t"], input=data, capture_output=True, check=True)
    assert listed.stdout.decode().split() == ["run", "e"]


async def test_files_that_were_there_are_replaced(tree, root):
    (root / "a").write_text("old")
    await receive(await packed([Source(tree / "script.sh", "a")]), root)
    assert (root / "a").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "a//b", ".", "", "a\0b", "x" * 300, "./x"])
async def test_names_that_leave_the_sandbox_are_refused(root, name):
    with pytest.raises(TransferError):
        check_name(name)
    if name and "\0" not in name:
        with pytest.raises(TransferError) as error:
            await receive(honest((member(name), b"x")), root)
        assert name.lstrip("./")[:20] in str(error.value)
    assert listing(root) == []


@pytest.mark.parametrize(
    ("name", "target"),
    [("l", "/etc"), ("l", "../x"), ("d/l", "../../x"), ("l", "a/../../x"), ("l", ".."), ("l", ""), ("l", "a/..")],
)
async def test_links_that_leave_the_sandbox_are_refused(root, name, target):
    with pytest.raises(TransferError, match="leaves the sandbox"):
        check_link(name, target)
    with pytest.raises(TransferError, match="leaves the sandbox"):
        await receive(honest((member(name, tarfile.SYMTYPE, target), b"")), root)
    assert listing(root) == []


@pytest.mark.parametrize(("name", "target"), [("l", "x"), ("d/l", "../x"), ("a/b/l", "../../c/d"), ("l", "./x")])
def test_links_that_stay_inside_are_taken(name, target):
    check_link(name, target)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"),
        (tarfile.GNUTYPE_SPARSE, "device"),
    ],
)
async def test_special_members_are_refused(root, kind, word):
    with pytest.raises(TransferError, match=word):
        await receive(honest((member("thing", kind, "/etc/passwd"), b"")), root)
    assert listing(root) == []


async def test_nothing_is_written_through_a_link_of_the_bundle(root):
    with pytest.raises(TransferError, match="lies below"):
        await receive(honest((member("d", tarfile.SYMTYPE, "e"), b""), (member("d/f"), b"x")), root)


async def test_nothing_is_written_through_a_link_that_was_there(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "d").symlink_to(outside)
    with pytest.raises(TransferError):
        await receive(honest((member("d", tarfile.DIRTYPE), b""), (member("d/f"), b"x")), root)
    assert listing(outside) == []


async def test_a_file_may_come_without_the_directories_above_it(root, tmp_path):
    (tmp_path / "deep").write_text("x")
    await receive(await packed([Source(tmp_path / "deep", "a/b/deep", follow=True)]), root)
    assert listing(root) == ["a", "a/b", "a/b/deep"]


async def test_a_name_may_not_come_twice(root):
    with pytest.raises(TransferError, match="twice"):
        await receive(honest((member("a"), b"1"), (member("a"), b"2")), root)
    assert listing(root) == []


async def test_a_wrong_checksum_is_found(root):
    with pytest.raises(TransferError, match=r"f: damaged on the way"):
        await receive(honest((member("f"), b"x"), last_sum="0" * 64), root)
    assert listing(root) == []


async def test_a_missing_member_is_found(root):
    with pytest.raises(TransferError, match="where 3 were sent"):
        await receive(honest((member("f"), b"x"), count=3), root)


async def test_an_ordinary_tar_without_checksums_is_refused(root):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(member("f"))
        archive.addfile(member("g"))
    with pytest.raises(TransferError, match="checksum is missing"):
        await receive(out.getvalue(), root)


async def test_compressed_data_is_not_unpacked(root):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.addfile(member("f"))
    with pytest.raises(TransferError, match=r"damaged|too early"):
        await receive(out.getvalue() + bytes(2 * BLOCK), root)


async def test_a_huge_announced_size_is_refused_before_anything_is_written(root):
    info = member("big")
    info.size = 1 << 50
    data = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    with pytest.raises(TransferError, match=r"big: .*limit of 1000"):
        await receive(data, root, limit_bytes=1000)
    assert listing(root) == []


async def test_a_huge_extended_header_is_refused(root):
    info = member("x", tarfile.XHDTYPE)
    info.size = 1 << 40
    with pytest.raises(TransferError, match="bytes of header"):
        await receive(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict"), root)


@settings(max_examples=60)
@given(st.data())
async def test_a_truncated_or_damaged_stream_is_never_taken(tmp_path_factory, data):
    """Whatever bit changes, either the content is as it was or the bundle is refused and nothing is there."""
    content = b"The quick brown fox" * 30
    stream = honest((member("d", tarfile.DIRTYPE), b""), (member("d/f"), content), (member("g"), b""))
    root = tmp_path_factory.mktemp("to")
    if data.draw(st.booleans()):
        # Only the last of the two zero blocks that end a tar may be missing.
        stream = stream[: data.draw(st.integers(0, len(stream) - BLOCK - 1))]
    else:
        at = data.draw(st.integers(0, len(stream) - 1))
        stream = stream[:at] + bytes([stream[at] ^ (1 << data.draw(st.integers(0, 7)))]) + stream[at + 1 :]
    try:
        await receive(stream, root)
    except TransferError:
        assert listing(root) == []
    else:
        assert any(path.is_file() and path.read_bytes() == content for path in root.rglob("*"))


async def test_a_link_as_source_may_not_lead_out_of_its_directory(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    scratch = tmp_path / "scratch"
    (scratch / "sub").mkdir(parents=True)
    (scratch / "out").symlink_to(secret)
    (scratch / "dir").symlink_to(tmp_path)
    (scratch / "sub" / "ok").symlink_to("../real")
    (scratch / "real").write_text("r")
    for bad in (Source(scratch / "out", "out"), Source(scratch / "dir" / "secret", "dir/secret")):
        with pytest.raises(TransferError, match="outside of"):
            await packed([bad])
    assert b"r" in await packed([Source(scratch / "sub" / "ok", "sub/ok")])
    assert await packed([Source(scratch / "out", "out", follow=True)])


async def test_a_link_inside_a_sent_directory_may_not_lead_out_of_it(tmp_path):
    sent = tmp_path / "sent"
    (sent / "in").mkdir(parents=True)
    (sent / "in" / "fine").symlink_to("../other")
    await packed([Source(sent, "x/y")])
    (sent / "in" / "bad").symlink_to("../../secret")
    with pytest.raises(TransferError, match="leaves the sandbox"):
        await packed([Source(sent, "x/y")])


async def test_missing_and_special_sources_are_named(tmp_path):
    with pytest.raises(TransferError, match=r"input\.txt: cannot read .*No such file"):
        await packed([Source(tmp_path / "nope", "input.txt")])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TransferError, match="no regular file"):
        await packed([Source(tmp_path / "pipe", "pipe")])


async def test_a_file_that_shrinks_while_it_is_sent_is_an_error(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(bytes(2_000_000))
    stream = write_bundle([Source(path, "log")])
    await anext(stream)
    os.truncate(path, 10)
    with pytest.raises(TransferError, match="became shorter"):
        async for _ in stream:
            pass


async def test_an_empty_bundle_is_a_bundle(root):
    assert await receive(await packed([]), root) == []


async def test_a_root_that_can_not_be_written_is_an_error(tmp_path):
    with pytest.raises(TransferError, match="cannot receive files in"):
        await receive(b"", Path(tmp_path / "missing"))
