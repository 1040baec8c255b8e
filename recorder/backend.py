"""Builds the package for pip, without other packages: the hooks `build_wheel` and `build_sdist` of PEP 517."""

import base64
import hashlib
import os
import re
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "headroom_recorder"


def read(name):
    with open(os.path.join(HERE, name), "rb") as file:
        return file.read()


def value(key):
    """A text of pyproject.toml. Python has a parser from 3.11 on only."""
    return re.search(rf'^{key} = "(.+)"$', read("pyproject.toml").decode(), re.MULTILINE).group(1)


def metadata():
    fields = [
        ("Metadata-Version", "2.1"),
        ("Name", value("name")),
        ("Version", value("version")),
        ("Summary", value("description")),
        ("Requires-Python", value("requires-python")),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{key}: {text}\n" for key, text in fields).encode() + b"\n" + read("README.md")


def sources():
    return sorted(f"{PACKAGE}/{name}" for name in os.listdir(os.path.join(HERE, PACKAGE)) if name.endswith(".py"))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"{PACKAGE}-{value('version')}"
    info = f"{name}.dist-info"
    files = {path: read(path) for path in sources()}
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: headroom\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = f"{info}/RECORD"
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    wheel = f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    name = f"{PACKAGE}-{value('version')}"
    with tarfile.open(os.path.join(sdist_directory, f"{name}.tar.gz"), "w:gz") as archive:
        for path in ["pyproject.toml", "README.md", "backend.py", *sources()]:
            archive.add(os.path.join(HERE, path), f"{name}/{path}")
        path = os.path.join(sdist_directory, "PKG-INFO")
        with open(path, "wb") as file:
            file.write(metadata())
        archive.add(path, f"{name}/PKG-INFO")
        os.remove(path)
    return f"{name}.tar.gz"
