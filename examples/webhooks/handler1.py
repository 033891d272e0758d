#!/usr/bin/env python3
"""Notes the webhook of a repository; one without `repository.full_name` fails for good.

Each completed run is one line of the file that WEBHOOK_NOTES names, the run's idempotency key. A key that
is there already is not noted again: a worker that died after the note and before its commit has this
handler run once more with the same key, and so the effect still happens once.

Imports are few, since this starts once a message: run it by `python3 -S -E`.
"""

import fcntl
import json
import os
import sys

EX_DATAERR = 65


def reject(code, message):
    """Fails for good: the last line of stdout says why."""
    print(json.dumps({"error_code": code, "message": message}))
    sys.exit(EX_DATAERR)


def demand_full_name(payload):
    try:
        webhook = json.loads(payload)
    except ValueError:
        reject("JSON_MALFORMED", "the webhook is no JSON")
    repository = webhook.get("repository") if isinstance(webhook, dict) else None
    if not isinstance(repository, dict):
        reject("REPOSITORY_MISSING", "the webhook names no repository")
    if not isinstance(repository.get("full_name"), str):
        reject("REPOSITORY_MISSING", "the webhook's repository has no full_name")


def note_once(path, key):
    with open(path, "a+", encoding="ascii") as notes:
        fcntl.flock(notes, fcntl.LOCK_EX)  # held until the file is closed
        notes.seek(0)
        if key not in notes.read().splitlines():
            notes.write(key + "\n")
            notes.flush()
            os.fsync(notes.fileno())


if __name__ == "__main__":
    demand_full_name(sys.stdin.buffer.read())
    note_once(os.environ["WEBHOOK_NOTES"], os.environ["REDRIVE_IDEMPOTENCY_KEY"])
