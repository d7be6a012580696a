"""What every provider refuses in a request, for tests: rules that the protocols share, and the judge by protocol.

Written from the providers' documented and observed errors, independently of the code that writes requests. The rules of
each protocol stand with its streams, in testing_messages.py, testing_responses.py and testing_chat.py.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def json_problems(body: Any) -> Iterator[str]:
    """What is no strict JSON in valid Unicode. Headers are not part of the body."""
    sent = {key: value for key, value in body.items() if key != "extra_headers"}
    try:
        json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        yield "half a surrogate pair"
    except (TypeError, ValueError) as error:
        yield f"no JSON: {error}"


def text_problems(where: str, text: Any) -> Iterator[str]:
    """What is no text, or blank."""
    if not isinstance(text, str) or not text.strip():
        yield f"blank text in {where}"


def arguments_problems(name: str, arguments: Any) -> Iterator[str]:
    """Calls carry an object as JSON text."""
    try:
        given = json.loads(arguments)
    except (TypeError, ValueError):
        given = None
    if not isinstance(given, dict):
        yield f"the arguments of {name!r} are no JSON object: {arguments!r}"


def call_problems(call_id: Any, name: Any, *, length: int) -> Iterator[str]:
    """Ids and names have an alphabet and a length."""
    if not isinstance(call_id, str) or not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{length}}}", call_id):
        yield f"call id {call_id!r} is not valid"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"call of {name!r}, which is no name"


def declaration_problems(declared: Iterable[tuple[Any, Any]]) -> Iterator[str]:
    """Tools have valid names, each its own, and take an object; given are names and schemas."""
    seen: set[str] = set()
    for name, schema in declared:
        if name in seen:
            yield f"tool {name!r} is declared twice"
        if not isinstance(schema, dict):
            yield f"tool {name!r} takes no object"
        seen.add(name)


def data_url_problems(url: Any) -> Iterator[str]:
    """Pictures are sent whole."""
    if not re.fullmatch(r"data:image/(jpeg|png|gif|webp);base64,\S+", str(url)):
        yield f"a picture at {str(url)[:40]!r}"
