"""One file over HTTP: a download that broke off goes on where it stopped, a bounded number of times."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedns.core.errors import DataError

ATTEMPTS = 4  # in a row without getting PROGRESS_BYTES further
PROGRESS_BYTES = 1 << 20
PAUSE_SECONDS = 0.5  # before the second attempt, doubled before each later one
TIMEOUT_SECONDS = (10.0, 60.0)  # to connect, and between two packets
_BLOCK_BYTES = 1 << 18
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})

Report = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


class NotThere(DataError):
    """The server answers, but has no such file."""


class _BrokeOff(Exception):
    """This attempt failed in a way that another one may not."""


def require(package: str) -> Any:
    """A package of the fetch extra."""
    try:
        return import_module(package)
    except ImportError:
        raise DataError(f"downloading needs the package {package}: install it with pip install 'fedns[fetch]'") from None


def download(url: str, part: Path, report: Report) -> None:
    """Bring `part` to the full length of the file at `url`."""
    furthest, failures = 0, 0
    while True:
        try:
            return _attempt(url, part, report)
        except _BrokeOff as problem:
            reached = _size(part)
            # Measured from the furthest point ever reached, so that a server that starts over cannot keep us for good.
            failures = 1 if reached >= furthest + PROGRESS_BYTES else failures + 1
            furthest = max(furthest, reached)
            if failures >= ATTEMPTS:
                raise DataError(f"{url} cannot be downloaded ({problem}): check the network and try again") from problem
        time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))


def _attempt(url: str, part: Path, report: Report) -> None:
    requests, urllib3 = require("requests"), require("urllib3")
    try:
        with requests.get(url, headers=_headers(part), stream=True, timeout=TIMEOUT_SECONDS) as response:
            _check_status(response.status_code, url, part)
            total = _receive(response, part, report)
    except requests.exceptions.SSLError as error:
        raise DataError(
            f"{url} cannot be trusted ({error}): check the clock and the certificates of this machine"
        ) from error
    except requests.exceptions.ConnectionError as error:
        raise _BrokeOff(f"{urlsplit(url).netloc} does not answer, or this machine is offline") from error
    except requests.exceptions.Timeout as error:
        raise _BrokeOff("the server took too long") from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _BrokeOff(f"the connection broke off after {_size(part)} bytes") from error
    if total is not None and _size(part) != total:
        raise _BrokeOff(f"the connection broke off after {_size(part)} of {total} bytes")
    _validator_file(part).unlink(missing_ok=True)


def _headers(part: Path) -> dict[str, str]:
    # Without a validator the file may have changed since, and two halves of different files must not be joined.
    headers = {"Accept-Encoding": "identity", "User-Agent": "fedns"}
    if _size(part) and _validator_file(part).is_file():
        headers |= {"Range": f"bytes={_size(part)}-", "If-Range": _validator_file(part).read_text(encoding="latin-1")}
    return headers


def _check_status(status: int, url: str, part: Path) -> None:
    if status in (200, 206):
        return
    if status in (404, 410):
        raise NotThere(f"{url} does not exist (status {status}): check the address of the collection")
    if status == 416:  # the part is longer than the file: it belongs to another one
        part.unlink(missing_ok=True)
    if status in _BUSY or status == 416:
        raise _BrokeOff(f"the server answered with status {status}")
    raise DataError(f"{url} is refused by the server (status {status}): check the address of the collection")


def _receive(response: Any, part: Path, report: Report) -> int | None:
    """Append or start over, as the server decided; returns the length of the whole file where it says so."""
    start, total = _start_and_total(response)
    if start not in (0, _size(part)):
        raise _BrokeOff(f"the server went on at byte {start} instead of {_size(part)}")
    if start == 0:
        _remember_validator(response.headers, part)
    done = start
    with part.open("ab" if start else "wb") as stream:
        report(done, total)
        # The raw stream: a file that is compressed on purpose must not be unpacked on the way.
        for block in response.raw.stream(_BLOCK_BYTES, decode_content=False):
            stream.write(block)
            done += len(block)
            report(done, total)
    return total


def _start_and_total(response: Any) -> tuple[int, int | None]:
    if response.status_code == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if found is None:
            raise _BrokeOff("the server sent a part without saying which")
        return int(found[1]), None if found[2] == "*" else int(found[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _remember_validator(headers: Any, part: Path) -> None:
    tag = headers.get("ETag", "")
    validator = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")  # weak tags allow no ranges
    if validator:
        _validator_file(part).write_text(validator, encoding="latin-1")
    else:
        _validator_file(part).unlink(missing_ok=True)


def _validator_file(part: Path) -> Path:
    return part.with_name(part.name + ".validator")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
