"""The line protocol with the drill that started us: one JSON object per line, on standard output and input.

The drill owns the processes: it kills and starts managers on demand. What holds and what does not is told as it is seen.
"""

import json
import sys
from contextlib import contextmanager

import grpc


def _tell(**line):
    print(json.dumps(line), flush=True)


def says(text):
    """What is being done; shown while it lasts."""
    _tell(says=text)


@contextmanager
def claim(text):
    """A claim that holds if the block under it ends, and is a violation if it fails. Gives a list for figures."""
    says(text)
    figures = []
    try:
        yield figures
    except grpc.RpcError as error:
        _tell(broken=f"{text}: {error.code().name}: {error.details()}")
    except Exception as error:  # pylint: disable=broad-except
        _tell(broken=f"{text}: {type(error).__name__}: {error}")
    else:
        _tell(held=": ".join([text, *figures]))


def _ask(what, manager):
    _tell(do=what, manager=manager)
    answer = json.loads(sys.stdin.readline())
    if not answer["ok"]:
        raise RuntimeError(f"the drill could not {what} {manager}: {answer['error']}")


def kill(manager):
    """SIGKILL; returns when the process is gone."""
    _ask("kill", manager)


def start(manager):
    """Starts a killed manager again; returns at once."""
    _ask("start", manager)


def settle():
    """Waits until one manager leads and all others follow it."""
    _ask("settle", "")


def done():
    """The last word: without it the run counts as broken off."""
    _tell(done=True)


def same(got, wanted, what):
    """`got` must be `wanted`."""
    assert got == wanted, f"{what} is {got!r}, not {wanted!r}"
