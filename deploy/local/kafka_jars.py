"""What a local broker is made of: the jars of Apache Kafka, fetched once, and the Java to run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
POM: Final = Path(__file__).resolve().parent / "kafka" / "pom.xml"
JAVA_MIN: Final = 17  # what Kafka 4 asks of a broker


class BrokerError(RuntimeError):
    """The local broker cannot be had: what is wrong, where, and how to mend it."""


def version() -> str:
    """The Kafka version that the pom names."""
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text(encoding="utf-8"))
    if found is None:
        raise BrokerError(f"{POM} has no <kafka.version>: restore the property")
    return found[1]


def fetch(*, profile: str = "") -> Path:
    """The folder with the broker's jars; downloads them when they are not there yet.

    With a `profile` of the pom: a folder with those that it adds, too.
    """
    home = ROOT / ".kafka" / version()
    libs = home / (profile or "libs")
    if libs.is_dir():
        return libs
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(f"cannot fetch Kafka into {libs}: no mvn on the PATH; install Apache Maven")
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home.parent) as scratch:
        fresh = Path(scratch) / "libs"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
        command = [maven, "-B", "-q", "-f", str(POM), *([f"-P{profile}"] if profile else []), *goal]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            mend = f"check that Maven reaches its repository, and the versions in {POM}"
            said = tail(done.stdout + done.stderr)
            raise BrokerError(f"could not fetch Kafka {version()} into {libs}: {mend}. It says:\n{said}")
        try:
            fresh.rename(libs)
        except OSError:
            if not libs.is_dir():  # else someone else was first, with the same jars
                raise
    return libs


def java() -> str:
    """Where the Java stands that brokers run on."""
    home = os.environ.get("JAVA_HOME")
    mend = f"install a JDK, version {JAVA_MIN} or newer"
    path = shutil.which("java", path=f"{home}/bin" if home else None)
    if path is None:
        raise BrokerError(f"no java in {f'JAVA_HOME ({home})' if home else 'the PATH'}: {mend}")
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise BrokerError(f"{path} is too old for Kafka {version()}: {mend}. It says:\n{said.strip()}")
    return path


def tail(text: str) -> str:
    """The last lines of what a program said."""
    return "\n".join(text.splitlines()[-15:])
