"""Changes of generated requests, for `cargo xtask fuzz-http`."""

import itertools
import re

import schemathesis

HEADER = "Idempotency-Key"
# One request in this number keeps its generated key, which an earlier request may have used.
KEPT = 8

requests = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes the keys of valid requests unique: most generated keys are equal, so that the server would refuse them."""
    if case.meta is not None and not case.meta.generation.mode.is_positive:
        return
    key = (case.headers or {}).get(HEADER)
    if not isinstance(key, str) or not re.fullmatch(r"[!-~](?:[ -~]*[!-~])?", key):
        return
    number = next(requests)
    if len(key) <= 200 and number % KEPT:
        case.headers[HEADER] = f"{key}-{number}"
