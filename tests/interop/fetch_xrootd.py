#!/usr/bin/python3
"""Fetches the source of a version of XRootD, which its Python package on PyPI contains.

usage: fetch_xrootd.py VERSION DIRECTORY
"""

import hashlib
import io
import json
import pathlib
import sys
import tarfile
import urllib.request


def fetch(url):
    address = getattr(url, "full_url", url)
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return answer.read()
    except OSError as why:
        sys.exit(f"fetch_xrootd: {address} cannot be had: {why}. Is there a network?")


def main():
    version, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    name = f"xrootd-{version}"
    request = urllib.request.Request("https://pypi.org/simple/xrootd/",
                                     headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    files = json.loads(fetch(request))["files"]
    found = [one for one in files if one["filename"] == f"{name}.tar.gz"]
    if not found:
        sys.exit(f"fetch_xrootd: PyPI has no source of XRootD {version}")
    archive = fetch(found[0]["url"])
    if hashlib.sha256(archive).hexdigest() != found[0]["hashes"]["sha256"]:
        sys.exit(f"fetch_xrootd: {found[0]['url']} has another checksum than PyPI says")
    directory.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            path = pathlib.PurePosixPath(member.name)
            if path.parts[0] != name or ".." in path.parts:
                sys.exit(f"fetch_xrootd: {member.name} is not below {name}")
            member.name = str(path.relative_to(name))
            tar.extract(member, directory)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
