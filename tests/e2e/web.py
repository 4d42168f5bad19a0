"""What the host gets over HTTP from pods and Services, past any proxy that it may use for other hosts."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url: str, body: object = None, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Status and text; a body (JSON) makes it a POST. OSError when nobody answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with _DIRECT.open(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def fetch(url: str) -> str | None:
    """The page at a URL; None while nobody answers, or with an error."""
    try:
        status, text = ask(url)
    except OSError:
        return None
    return text if status == 200 else None
