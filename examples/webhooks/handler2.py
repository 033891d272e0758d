#!/usr/bin/env python3
"""The fix: notes any webhook, whether or not it names a repository.

Notes the same way as handler1.py, so that whatever ran before the fix is not noted again.
"""

import json
import os
import sys

from handler1 import note_once, reject

if __name__ == "__main__":
    try:
        json.load(sys.stdin.buffer)
    except ValueError:
        reject("JSON_MALFORMED", "the webhook is no JSON")
    note_once(os.environ["WEBHOOK_NOTES"], os.environ["REDRIVE_IDEMPOTENCY_KEY"])
