"""A program that mha-parity asks: ``python command.py [MISDEED [REQUESTS ANSWERS]]``.

Right without an argument or with "", and with "strict", by which it ends at rows that it does not
offer. With one it does that wrong on problems of four queries.
Without two files it is asked over standard input and output.
"""

import json
import os
import struct
import sys
import time

import numpy as np

PROTOCOL = "mha-parity-exec/1"
OFFER = {
    "form": "qkv,mha", "projection": "none,packed", "inputs": "self,cross,distinct",
    "bias": "no,yes", "out_proj": "identity,general", "attn": "none,float2d",
    "padding": "none,lengths", "weights": "none,per_head", "gradients": "no,yes",
}  # fmt: skip


MISDEED = sys.argv[1] if len(sys.argv) > 1 else ""
SOURCE, SINK = sys.stdin.buffer, sys.stdout.buffer
if len(sys.argv) > 2:
    SOURCE, SINK = open(sys.argv[2], "rb"), open(sys.argv[3], "wb")


def receive():
    length = SOURCE.read(8)
    if not length:
        sys.exit()
    block = SOURCE.read(*struct.unpack("<Q", length))
    (size,) = struct.unpack_from("<Q", block)
    header = json.loads(block[8 : 8 + size])
    options = header.pop("__metadata__")
    kinds = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "BOOL": "?"}
    arrays = {}
    for name, given in header.items():
        if MISDEED == "strict" and name in ("query", "key", "value"):
            assert given["dtype"] == "F64", given  # the others are not in its offer
        first, last = given["data_offsets"]
        data = block[8 + size + first : 8 + size + last]
        arrays[name] = np.frombuffer(data, kinds[given["dtype"]]).reshape(given["shape"])
    return arrays, options


def frame(arrays, said):
    header, data = {"__metadata__": {"protocol": PROTOCOL, **said}}, b""
    for name, array in arrays.items():
        part = array.astype("<f8").tobytes()
        place = [len(data), len(data) + len(part)]
        header[name] = {"dtype": "F64", "shape": array.shape, "data_offsets": place}
        data += part
    text = json.dumps(header).encode()
    block = struct.pack("<Q", len(text)) + text + data
    return struct.pack("<Q", len(block)) + block


def split(x, heads):
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def attention(arrays, options):
    given = {part: arrays[name] for part, name in zip("qkv", ("query", "key", "value"))}
    if given["k"].shape[1] != given["v"].shape[1]:
        raise ValueError(f"{given['k'].shape[1]} keys and {given['v'].shape[1]} values")
    heads = int(options["num_heads"])
    rows = {part: x @ arrays[f"w_{part}"].T if f"w_{part}" in arrays else x
            for part, x in given.items()}  # fmt: skip
    rows = {part: x + arrays.get(f"b_{part}", 0) for part, x in rows.items()}
    q, k, v = (split(x, heads) for x in rows.values())
    scale = float(options["scale"])
    scores = q @ k.swapaxes(-1, -2) * scale + arrays.get("attn_mask", 0)
    if "valid_lens" in arrays:
        hidden = np.arange(k.shape[2]) >= arrays["valid_lens"][:, None, None, None]
        scores = np.where(hidden, -np.inf, scores)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    p /= p.sum(axis=-1, keepdims=True)
    merged = (p @ v).swapaxes(1, 2).reshape(rows["q"].shape)
    output = merged @ arrays["w_out"].T if "w_out" in arrays else merged
    found = {"output": output + arrays.get("b_out", 0)}
    if options["weights"] == "per_head":
        found["weights"] = p
    if options["gradients"] == "yes":
        given = split(arrays["cotangent"], heads)
        back = p * (given @ v.swapaxes(-1, -2) - (given * (p @ v)).sum(-1, keepdims=True))
        found["gradient.attn_mask"] = back.sum(axis=(0, 1))
        found |= {
            f"gradient.{name}": x.swapaxes(1, 2).reshape(arrays[name].shape)
            for name, x in (
                ("query", scale * back @ k),
                ("key", scale * back.swapaxes(-1, -2) @ q),
                ("value", p.swapaxes(-1, -2) @ given),
            )
        }
    return found


def misbehave(misdeed, found):
    output = found["output"]
    if misdeed == "exits":
        print("out of order", file=sys.stderr)
        os._exit(3)
    if misdeed == "aborts":
        os.abort()
    if misdeed == "hangs":
        time.sleep(600)
    if misdeed == "grows":
        held = np.ones(2**26)
        time.sleep(600 + held[0])
    if misdeed == "half":
        os.write(SINK.fileno(), frame(found, {})[:50])
        os._exit(0)
    replies = {
        "prints": b"computing attention\n" + frame(found, {}),
        "header": struct.pack("<QQ", 14, 6) + b"{no JS",
        "holes": frame(found, {}).replace(b'"data_offsets": [0', b'"data_offsets": [8'),
        "foreign": frame(found, {"protocol": "other/2"}),
        "nothing": frame({}, {}),
        "shape": frame({"output": output[:, :-1]}, {}),
        "error": frame({}, {"error": "four queries are too many"}),
        "wrong": frame(found | {"output": output * 1.01}, {}),
    }
    return replies[misdeed]


def main():
    while True:
        arrays, options = receive()
        if options["request"] == "offer":
            offered = OFFER if MISDEED != "boasts" else {"attn": "sideways"}
            reply = frame({}, offered)
        else:
            try:
                found = attention(arrays, options)
                fails = MISDEED not in {"", "strict"} and arrays["query"].shape[1] == 4
                reply = misbehave(MISDEED, found) if fails else frame(found, {})
            except ValueError as error:
                reply = frame({}, {"error": str(error)})
        SINK.write(reply)
        SINK.flush()


main()
