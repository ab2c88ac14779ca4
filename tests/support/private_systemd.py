"""A real systemd that runs units in namespaces of its own, beside whatever runs this machine.

It is process 1 of its own process tree and sees its own /etc, /run, /opt, /tmp and cgroup. It knows
no units but those that it is given. Root is needed to make namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SYSTEMD = Path("/lib/systemd/systemd")
PATIENCE = 60.0

_TARGETS = ("sysinit", "basic", "shutdown", "multi-user", "local-fs", "umount")
_STUB = "[Unit]\nDescription=nothing\nDefaultDependencies=no\n"

# $1: folder of the test, $2: lines of SOURCE TARGET to mount, $3: cgroup2 or cgroup, $4: systemd
_BOOT = """
set -e
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /run/lock "$1/layers"
mount -t tmpfs tmpfs "$1/layers"
mkdir "$1/layers/up" "$1/layers/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/layers/up,workdir=$1/layers/work" /etc
rm -rf /etc/systemd/system
cp -r "$1/units" /etc/systemd/system
while IFS=: read -r name rest; do
  getent passwd "$name" >/dev/null || echo "$name:$rest" >> /etc/passwd
done < "$1/users"
while IFS=: read -r name rest; do
  getent group "$name" >/dev/null || echo "$name:$rest" >> /etc/group
done < "$1/groups"
umount -R /sys/fs/cgroup 2>/dev/null || true
if [ "$3" = cgroup2 ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
  mount -t tmpfs tmpfs /sys/fs/cgroup
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi
mount -t tmpfs tmpfs /opt
while read -r source target; do
  mkdir -p "$target"
  mount --bind "$source" "$target"
done < "$2"
chmod 755 /opt
mount -t tmpfs -o mode=1777 tmpfs /tmp
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test \\
  SYSTEMD_UNIT_PATH=/etc/systemd/system \\
  "$4" --system --unit=multi-user.target --log-target=console --show-status=0
"""


def missing_systemd() -> str:
    """Return why no systemd can be started here, or an empty text if one can."""
    if os.geteuid() != 0:
        return "only root may make the namespaces for a systemd"
    for tool in (str(SYSTEMD), "unshare", "nsenter", "systemctl"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = ["unshare", "--pid", "--fork", "--mount", "--cgroup", "--propagation", "private"]
    done = subprocess.run([*probe, "mount", "-t", "tmpfs", "x", "/opt"], capture_output=True)
    return "" if done.returncode == 0 else "this system allows no mount namespaces"


class PrivateSystemd:
    """A systemd that has started; units are driven through its own systemctl."""

    def __init__(self, init: int, log: Path) -> None:
        self._init, self.log = init, log

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command where the units run."""
        inside = ["nsenter", f"--target={self._init}", "--mount", "--pid", "--cgroup"]
        return subprocess.run([*inside, *command], capture_output=True, text=True, timeout=PATIENCE)

    def systemctl(self, *arguments: str) -> str:
        """Run systemctl, which must succeed."""
        done = self.run("systemctl", *arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}\n{self.log.read_text()}"
        return done.stdout.strip()

    def property(self, unit: str, name: str) -> str:
        """Return a property of a unit, such as its MainPID."""
        return self.systemctl("show", unit, f"--property={name}", "--value")

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"{what} did not come:\n{self.log.read_text()}"
            time.sleep(0.1)


@contextmanager
def private_systemd(
    folder: Path, units: Mapping[str, str], mounts: Mapping[Path, str], user: str
) -> Iterator[PrivateSystemd]:
    """Start a systemd with these units, by name, and these folders mounted below /opt or /var.

    `user` is an account that exists there, in the groups video and render.
    """
    for name, text in {**{f"{name}.target": _STUB for name in _TARGETS}, **units}.items():
        (folder / "units" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "units" / name).write_text(text)
    (folder / "users").write_text(f"{user}:x:971:971::/home/{user}:/usr/sbin/nologin\n")
    groups = (f"{user}:x:971:", f"video:x:44:{user}", f"render:x:972:{user}")
    (folder / "groups").write_text("".join(f"{group}\n" for group in groups))
    table = folder / "mounts"
    table.write_text("".join(f"{source} {target}\n" for source, target in mounts.items()))
    base = Path("/sys/fs/cgroup")
    unified = (base / "cgroup.controllers").exists()
    group = (base if unified else base / "systemd") / f"anoco-test-{os.getpid()}"
    group.mkdir()
    log = folder / "log"
    join = 'echo 0 > "$0/cgroup.procs"; exec "$@"'
    spaces = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--uts", "--ipc"]
    boot = ["sh", "-c", _BOOT, "sh", folder, table, "cgroup2" if unified else "cgroup", SYSTEMD]
    with log.open("w") as sink:
        process = subprocess.Popen(
            ["sh", "-c", join, group, *spaces, "--cgroup", "--propagation", "private", *boot],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        yield _started(process, log)
    finally:
        # With process 1 of a tree everything in it ends; unshare then ends by itself.
        for child in _children(process):
            os.kill(child, signal.SIGKILL)
        process.wait(PATIENCE)
        _remove_group(group)


def _started(process: subprocess.Popen[bytes], log: Path) -> PrivateSystemd:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        for child in _children(process):
            system = PrivateSystemd(child, log)
            if system.run("systemctl", "is-active", "multi-user.target").returncode == 0:
                return system
        time.sleep(0.1)
    raise AssertionError(f"systemd did not start:\n{log.read_text()}")


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    try:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:  # it has ended
        return []
    return [int(child) for child in text.split()]


def _remove_group(group: Path) -> None:
    """Remove the cgroups, which are empty once the kernel has reaped all their processes."""
    end = time.monotonic() + PATIENCE
    while group.exists() and time.monotonic() < end:
        for path in sorted(group.rglob("*"), reverse=True):
            if path.is_dir():
                _try_remove(path)
        _try_remove(group)
        time.sleep(0.05)


def _try_remove(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return
