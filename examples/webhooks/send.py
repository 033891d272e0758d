#!/usr/bin/env python3
"""Sends every example webhook to an SQS queue, or writes them to a file.

One message per example, in the package's order: the body is the example as compact JSON, the String
attribute `event` is its event's name. Region, credentials and endpoint are those of the AWS SDK's own
variables, AWS_ENDPOINT_URL among them. Exit 1 if any message was not accepted, and each is named.

Deliberately absent: FIFO queues, and sending again what was refused.
"""

import argparse
import json
import os
import pathlib
import sys

DATA = pathlib.Path(__file__).with_name(".data") / "api.github.com" / "index.json"
MAX_ENTRIES = 10
MAX_BYTES = 1_048_576


def read_messages(data):
    """The examples as (body, event)."""
    return [
        (json.dumps(example, separators=(",", ":"), ensure_ascii=False), event["name"])
        for event in json.loads(data.read_text(encoding="utf-8"))
        for example in event["examples"]
    ]


def size(body, event):
    """What SQS counts: body, attribute name, type and value, in bytes."""
    return len(body.encode()) + len("event") + len("String") + len(event.encode())


def batches(messages):
    """Numbered messages in batches that SQS accepts."""
    batch, used = [], 0
    for number, message in enumerate(messages):
        needed = size(*message)
        if batch and (len(batch) == MAX_ENTRIES or used + needed > MAX_BYTES):
            yield batch
            batch, used = [], 0
        batch.append((number, *message))
        used += needed
    if batch:
        yield batch


def send(queue, messages):
    """Sends all messages; returns how many were not accepted."""
    import boto3  # pip install boto3; only sending needs it

    sqs = boto3.client("sqs", region_name=os.environ.get("AWS_REGION"))
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    failed = 0
    for batch in batches(messages):
        entries = [
            {
                "Id": str(number),
                "MessageBody": body,
                "MessageAttributes": {"event": {"DataType": "String", "StringValue": event}},
            }
            for number, body, event in batch
        ]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        for entry in answer.get("Failed", []):
            failed += 1
            print(f"send.py: message {entry['Id']} refused: {entry['Code']}", file=sys.stderr)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("queue", metavar="QUEUE", nargs="?", help="name of the queue")
    parser.add_argument("--dump", metavar="FILE", help="write JSON Lines {body, event}, send nothing")
    parser.add_argument("--data", metavar="FILE", type=pathlib.Path, default=DATA)
    args = parser.parse_args()
    if (args.queue is None) == (args.dump is None):
        parser.error("give either QUEUE or --dump FILE")
    if not args.data.exists():
        sys.exit(f"send.py: {args.data} is missing: run ./fetch first")
    messages = read_messages(args.data)
    if args.dump is not None:
        with open(args.dump, "w", encoding="utf-8") as file:
            for body, event in messages:
                json.dump({"body": body, "event": event}, file, ensure_ascii=False)
                file.write("\n")
        return
    try:
        failed = send(args.queue, messages)
    except ImportError:
        sys.exit("send.py: boto3 is missing: pip install boto3")
    except Exception as error:  # The SDK's errors have no common base.
        sys.exit(f"send.py: {args.queue}: {error}")
    print(f"{len(messages) - failed} sent, {failed} refused")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
