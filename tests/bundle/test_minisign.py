"""Keys and signatures are those of minisign, in both directions."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import fails, ok
from signed_bundle import ENGINEER, STRANGER, make_signed_bundle
from without_packages import Machine

from anoco_edge.bundle.signatures.checking import check_signature
from anoco_edge.bundle.signatures.key_files import (
    read_public_key,
    read_secret_key,
    write_key_pair,
)
from anoco_edge.bundle.signatures.keys import SecretKey, needs_password
from anoco_edge.bundle.signatures.signature import Signature
from anoco_edge.errors import AnocoError, SignatureError, StorageError, UsageError

CHEAP = {"ops": 1 << 15, "mem": 1 << 24}  # of scrypt: 1 MB in place of 1 GB
minisign = pytest.mark.skipif(
    shutil.which("minisign") is None, reason="minisign is not installed (apt-get install minisign)"
)


def run(*words: object, given: str = "") -> subprocess.CompletedProcess[str]:
    command = ["minisign", *map(str, words)]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120)


# ---- with the real minisign


@minisign
def test_minisign_verifies_what_we_sign_and_sha256sum_checks_the_files(tmp_path: Path) -> None:
    bundle = make_signed_bundle(tmp_path / "line.anoco").bundle.path
    (statement,) = bundle.glob("signatures/*.txt")
    public = ENGINEER.public.line
    ran = run("-V", "-H", "-m", statement, "-P", public)
    assert ran.returncode == 0 and "generations:part=2" in ran.stdout, ran.stderr
    assert run("-V", "-m", statement, "-P", STRANGER.public.line).returncode != 0
    check = ["sha256sum", "--quiet", "-c", str(statement)]
    assert subprocess.run(check, cwd=bundle, capture_output=True).returncode == 0


@minisign
def test_we_accept_a_bundle_that_minisign_signed(tmp_path: Path) -> None:
    bundle = make_signed_bundle(tmp_path / "line.anoco").bundle.path
    (statement,) = bundle.glob("signatures/*.txt")
    keys = tmp_path / "m.pub", tmp_path / "m.key"
    assert run("-G", "-W", "-p", keys[0], "-s", keys[1]).returncode == 0
    assert run("-S", "-s", keys[1], "-m", statement).returncode == 0
    public = read_public_key(keys[0])
    state = check_signature(bundle, [public])
    assert state.key == public and state.comment.timestamp > 1_700_000_000
    assert run("-S", "-l", "-s", keys[1], "-m", statement).returncode == 0
    with pytest.raises(SignatureError, match="not its hash"):
        check_signature(bundle, [public])


@minisign
def test_keys_of_minisign_and_ours_are_the_same_files(tmp_path: Path) -> None:
    theirs = tmp_path / "m.key"
    assert run("-G", "-W", "-p", tmp_path / "m.pub", "-s", theirs).returncode == 0
    key = read_secret_key(theirs)
    assert key.to_text() == theirs.read_text()
    assert key.public.to_text() == (tmp_path / "m.pub").read_text()
    data = tmp_path / "data"
    data.write_bytes(b"anything")
    for number, words in enumerate((key.to_text(), key.to_text("a password", **CHEAP))):
        ours = tmp_path / f"ours-{number}.key"
        ours.write_text(words)
        ran = run("-S", "-s", ours, "-m", data, "-x", tmp_path / "x", given="a password\n")
        assert ran.returncode == 0, ran.stderr
        signature = Signature.parse((tmp_path / "x").read_bytes(), "x")
        assert key.public.verify(b"anything", signature)


@minisign
@pytest.mark.full  # scrypt takes 1 GB of memory
def test_a_password_of_minisign(tmp_path: Path) -> None:
    theirs = tmp_path / "m.key"
    ran = run("-G", "-p", tmp_path / "m.pub", "-s", theirs, given="größer\ngrößer\n")
    assert ran.returncode == 0, ran.stderr
    key = read_secret_key(theirs, lambda: "größer")
    assert key.public == read_public_key(tmp_path / "m.pub")


# ---- without it


def test_a_password_protects_a_key() -> None:
    text = ENGINEER.to_text("right", **CHEAP)
    assert needs_password(text) and not needs_password(ENGINEER.to_text())
    assert base64.b64encode(ENGINEER.seed)[:12].decode() not in text
    assert SecretKey.parse(text, "a.key", "right") == ENGINEER
    for password, words in (("wrong", "another password"), (None, "has a password")):
        with pytest.raises(UsageError, match=words):
            SecretKey.parse(text, "a.key", password)


def test_a_key_that_others_may_read_or_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    write_key_pair(path, ENGINEER)
    assert path.stat().st_mode & 0o777 == 0o600 and read_secret_key(path) == ENGINEER
    with pytest.raises(UsageError, match="exists already"):
        write_key_pair(path, STRANGER)
    path.chmod(0o640)
    with pytest.raises(StorageError, match="others than its owner"):
        read_secret_key(path)
    body = bytearray(base64.b64decode(path.read_text().splitlines()[1]))
    body[70] ^= 1  # of the seed
    text = f"untrusted comment: x\n{base64.b64encode(body).decode()}\n"
    for damaged in (text, text[:60], "", "x" * 300, "untrusted comment: x\nRWQ=\n"):
        with pytest.raises(UsageError):
            SecretKey.parse(damaged, "a.key")
    with pytest.raises(UsageError, match="is a secret key"):
        read_public_key(path)
    with pytest.raises(UsageError, match="cannot read the key"):
        read_public_key(tmp_path / "none.pub")


def test_every_bit_of_a_signature_counts() -> None:
    signature = ENGINEER.sign(b"data", "timestamp:1")
    raw = signature.to_bytes()
    assert Signature.parse(raw, "a") == signature and ENGINEER.public.verify(b"data", signature)
    assert Signature.parse(raw.replace(b"\n", b"\r\n"), "a") == signature
    start, end = raw.index(b"\n") + 1, len(raw) - 1
    for at in range(start, end):
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        try:
            good = ENGINEER.public.verify(b"data", Signature.parse(changed, "a"))
        except AnocoError:
            continue
        assert not good, at
    assert not ENGINEER.public.verify(b"Data", signature)


def test_the_commands_make_a_key_sign_and_verify(tmp_path: Path) -> None:
    bundle = make_signed_bundle(tmp_path / "line.anoco", STRANGER).bundle.path
    made = ok("sign", "--new-key", tmp_path / "mia", "--no-password", "--json").json
    key, public = tmp_path / "mia.key", tmp_path / "mia.pub"
    assert made["public_key"] == read_public_key(public).line
    assert "signed by key" in fails(4, "verify", bundle, "--key", public)
    assert ok("sign", bundle, "--key", key, "--json").json["signature"]["key"] == made["key"]
    signature = ok("verify", bundle, "--key", public, "--json").json["signature"]
    assert signature["generations"] == {"part": 2} and "manifest.json" in signature["files"]
    assert len(list(bundle.glob("signatures/*.txt"))) == 2, "the other signature still holds"
    ok("product", "set", bundle, "--threshold", "0.4")
    line = fails(4, "verify", bundle, "--key", public)
    assert "products/part/product.json was changed (generation 2 was signed, now 3)" in line
    ok("verify", bundle)
    (bundle / "note.txt").write_text("x")
    assert "does not belong to the bundle" in fails(1, "sign", bundle, "--key", key)
    (bundle / "note.txt").unlink()
    ok("sign", bundle, "--key", key)
    assert len(list(bundle.glob("signatures/*.txt"))) == 1, "what does not hold is removed"
    for wrong in ((), (bundle,), ("--key", key), (bundle, "--new-key", "x")):
        fails(2, "sign", *wrong)


def test_without_the_package_the_extra_is_named(tmp_path: Path) -> None:
    bundle = make_signed_bundle(tmp_path / "line.anoco").bundle.path
    public = tmp_path / "a.pub"
    public.write_text(ENGINEER.public.to_text())
    machine = Machine(tmp_path, ["cryptography"])
    refused = machine.run("verify", bundle, "--key", public)
    assert refused.code == 3 and "anoco-edge[sign]" in refused.complaint
    machine.ok("verify", bundle)
