"""What the Python scripts share: named checks, run in order, and the broker's kill switch."""

import os
import subprocess
import sys
import time
import traceback
import uuid

BOOTSTRAP = os.environ["INTEROP_BOOTSTRAP"]
AGAINST = os.environ["INTEROP_AGAINST"]
FULL = bool(os.environ.get("INTEROP_FULL"))
_checks = []


def check(what):
    """Registers a function as the check of `what`; it passes when it returns."""

    def register(function):
        _checks.append((what, function))
        return function

    return register


def run(call=lambda function: function()):
    """Runs all checks ($INTEROP_ONLY: those whose name or words have it in them; $INTEROP_SKIP: not those), says each, ends with 1 if one failed."""
    only, failed, ran = os.environ.get("INTEROP_ONLY", ""), 0, 0
    for what, function in _checks:
        if only not in what and only not in function.__name__:
            continue
        if any(words in what for words in filter(None, os.environ.get("INTEROP_SKIP", "").split("|"))):
            print(f"    skipped {what}")
            continue
        ran += 1
        began = time.monotonic()
        try:
            call(function)
            print(f"    ok      {what} ({time.monotonic() - began:.1f} s)")
        except Exception:
            failed += 1
            print(f"    FAILED  {what}")
            traceback.print_exc(file=sys.stdout)
    assert ran, f"no check has {only!r} in it"
    sys.stdout.flush()
    # Not `sys.exit`: clients that were left in a transaction on purpose are not to be tidied up.
    os._exit(1 if failed else 0)


def fresh(name):
    """A name nobody has had: topics, groups, transactional ids."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def equal(found, expected, what):
    """Compares whole sequences and shows where they part."""
    found, expected = list(found), list(expected)
    if found == expected:
        return
    at = next((i for i, (f, e) in enumerate(zip(found, expected)) if f != e), min(len(found), len(expected)))
    raise AssertionError(
        f"{what}: {len(found)} found, {len(expected)} expected; they part at {at}: "
        f"found {found[at:at + 5]}, expected {expected[at:at + 5]}"
    )


def broker(command):
    """`kill` or `restart`, on the broker this script talks to."""
    subprocess.run(os.environ["INTEROP_BROKER"].split() + [command], check=True, stdout=subprocess.DEVNULL)


def stored_as(codec, topic, partition=0):
    """Every batch of the partition lies on the broker's disk under that codec: what is read back doesn't show it."""
    from stored import batches

    found = batches(BOOTSTRAP, topic, partition)
    assert found and all(stored == codec for _, stored, _ in found), f"sent under {codec}, stored as {found[:5]}"
