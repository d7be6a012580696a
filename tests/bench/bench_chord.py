"""What chord costs, beside what the reference recorded for the same work.

Run it: `python tests/bench/bench_chord.py [name ...]`. The figures are CPU microseconds per operation, the median of
the passes; the reference's are those of chord 0.87.1 on Node 20, from tests/chord/vectors/README.md. They were taken
on another machine and day, so a ratio is a hint, and only a large one is a finding.

`kept` means that each new value is handed out as an immutable revision, as a watcher makes it necessary; what stands
beside it is the sum of the reference's flush and its immutable apply, which together give the same. Otherwise the
tracker changes in place what only it has seen (`adopt(..., consume=True)`), as the reference's mutable tracker does.
"""

import copy
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from perdure.chord import Decoder, Encoder, Tracker, apply, apply_immutable, copy_json

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PASSES = 5


def chunk(step: int) -> str:
    return "".join(LETTERS[(7 * step + 3 * place) % 36] for place in range(50))


CHUNKS = [chunk(step) for step in range(10_000)]


# Documents, and one step of each workload on a draft.


def text_document() -> Any:
    return {"text": "", "n": 0}


def map_document(width: int = 1_000) -> Any:
    return {"map": {f"k{i}": i for i in range(width)}}


def list_document() -> Any:
    return {"list": [{"id": i, "v": i % 10} for i in range(10_000)]}


def add_text(draft: Any, step: int) -> None:
    draft["text"] += CHUNKS[step]


def append_text(draft: Any, step: int) -> None:
    draft.append_text("text", CHUNKS[step])


def set_key(draft: Any, step: int) -> None:
    draft["map"][f"k{step * 7919 % 1000}"] = step + 1


def set_near_key(draft: Any, step: int) -> None:
    draft["map"][f"k{step % 10}"] = step + 1


def splice_middle(draft: Any, step: int) -> None:
    draft["list"][5000:5001] = [{"id": 100_000 + step, "v": step % 10}]


# Timed passes. Each takes what a pass needs and returns the CPU seconds of its loop.


def timed(steps: Iterable[Any], work: Callable[[Any], object]) -> float:
    gc.collect()
    started = time.process_time()
    for step in steps:
        work(step)
    return time.process_time() - started


def track(document: Any, edit: Callable[[Any, int], None], count: int, *, kept: bool) -> float:
    tracker = Tracker(document)

    def flush(step: int) -> None:
        change = tracker.begin_change()
        edit(change.state, step)
        prepared = change.prepare()
        if kept:
            _ = prepared.value
        tracker.adopt(prepared, consume=not kept)

    return timed(range(count), flush)


def batches(document: Any, edit: Callable[[Any, int], None], count: int) -> list[Any]:
    tracker = Tracker(document)
    made = []
    for step in range(count):
        change = tracker.begin_change()
        edit(change.state, step)
        prepared = change.prepare()
        made.append(prepared.ops)
        tracker.adopt(prepared, consume=True)
    return made


class Held:
    """A value that a pass goes on changing."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def apply(self, ops: Any) -> None:
        self.value = apply(self.value, ops)

    def apply_immutable(self, ops: Any) -> None:
        self.value = apply_immutable(self.value, ops)


def apply_pass(document: Any, made: list[Any]) -> float:
    return timed(copy.deepcopy(made), Held(document).apply)


def immutable_pass(document: Any, made: list[Any]) -> float:
    return timed(copy.deepcopy(made), Held(document).apply_immutable)


def encode_pass(_document: Any, made: list[Any]) -> float:
    return timed(made, Encoder().encode)


def decode_pass(_document: Any, made: list[Any]) -> float:
    encoder = Encoder()
    return timed([copy.deepcopy(encoder.encode(ops)) for ops in made], Decoder().decode)


def encode_dumps_pass(_document: Any, made: list[Any]) -> float:
    encoder, write = Encoder(), json.JSONEncoder(separators=(",", ":")).encode
    return timed(made, lambda ops: write(encoder.encode(ops)))


def loads_decode_pass(_document: Any, made: list[Any]) -> float:
    encoder, decoder = Encoder(), Decoder()
    return timed([json.dumps(encoder.encode(ops)) for ops in made], lambda line: decoder.decode(json.loads(line)))


# Cases: name, operations, the reference's CPU us per operation (None: it has no such case), and a pass.

Case = tuple[str, int, float | None, Callable[[], float]]


def tracking_cases() -> Iterable[Case]:
    for name, document, edit, count, flush, immutable in (
        ("append by +=", text_document, add_text, 10_000, 355.28, 2.43),
        ("append by append_text", text_document, append_text, 10_000, 355.28, 2.43),
        ("set in 1,000 keys", map_document, set_key, 10_000, 9.39, 1057.75),
        ("splice in 10,000 elements", list_document, splice_middle, 1_000, 5.48, 25.15),
    ):
        for kept in (False, True):
            yield (
                f"track: {name}{', kept' if kept else ''}",
                count,
                flush + immutable if kept else flush,
                lambda document=document, edit=edit, count=count, kept=kept: track(document(), edit, count, kept=kept),
            )
    for width in (10, 1_000, 100_000):
        for kept in (False, True):
            count = 200 if kept and width > 1_000 else 5_000
            yield (
                f"track: one edit in {width:,} keys{', kept' if kept else ''}",
                count,
                None,
                lambda width=width, kept=kept, count=count: track(map_document(width), set_near_key, count, kept=kept),
            )


REPLAYED = (
    ("append", text_document, append_text, 10_000, (0.79, 2.43, 0.83, 0.32, 1.56, 1.21)),
    ("set", map_document, set_key, 10_000, (1.13, 1057.75, 1.26, 0.42, 2.13, 1.43)),
    ("splice", list_document, splice_middle, 1_000, (2.58, 25.15, 1.11, 0.39, 2.54, 2.19)),
)

PASSES_OF = (
    ("apply", apply_pass),
    ("apply_immutable", immutable_pass),
    ("encode", encode_pass),
    ("decode", decode_pass),
    ("encode and dumps", encode_dumps_pass),
    ("loads and decode", loads_decode_pass),
)


def replay_cases() -> Iterable[Case]:
    for workload, document, edit, count, references in REPLAYED:
        made = batches(document(), edit, count)
        for (name, one_pass), reference in zip(PASSES_OF, references, strict=True):
            yield (
                f"{name}: {workload}",
                count,
                reference,
                lambda one_pass=one_pass, document=document, made=made: one_pass(document(), made),
            )


def copy_cases() -> Iterable[Case]:
    record = {"id": 7, "name": "row", "text": "some text " * 5, "tags": ["a", "b"], "score": 0.5, "done": False}
    value = {"rows": [record] * 100}
    yield "copy_json: 100 records of 8 values", 100, None, lambda: timed([value] * 100, copy_json)


def main(wanted: list[str]) -> None:
    print(f"{'case':44} {'n':>7} {'us/op':>9} {'reference':>10} {'ratio':>7}")
    for cases in (tracking_cases, replay_cases, copy_cases):
        for name, count, reference, one_pass in cases():
            if wanted and not any(word in name for word in wanted):
                continue
            one_pass()  # warm up
            cost = statistics.median(one_pass() for _ in range(PASSES)) / count * 1e6
            compared = f"{reference:10.2f} {cost / reference:7.2f}" if reference is not None else f"{'-':>10} {'-':>7}"
            print(f"{name:44} {count:7,} {cost:9.2f} {compared}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
