"""A second implementation of the vbucket contract (xxh64, lp32be), written from the algorithm's description and independent
of the service. Reads vbuckets.csv beside it and exits 1 at the first number that differs."""

import csv
import pathlib
import struct
import sys

MASK = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotate(value, bits):
    return ((value << bits) | (value >> (64 - bits))) & MASK


def step(lane, word):
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data, seed):
    at, end = 0, len(data)
    if end >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed & MASK, (seed - P1) & MASK]
        while at + 32 <= end:
            for index, word in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[index] = step(lanes[index], word)
            at += 32
        digest = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            digest = ((digest ^ step(0, lane)) * P1 + P4) & MASK
    else:
        digest = (seed + P5) & MASK
    digest = (digest + end) & MASK
    while at + 8 <= end:
        digest = (rotate(digest ^ step(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= end:
        digest = (rotate(digest ^ (struct.unpack_from("<I", data, at)[0] * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        digest = rotate(digest ^ (byte * P5 & MASK), 11) * P1 & MASK
    for shift, prime in ((33, P2), (29, P3), (32, 1)):
        digest = (digest ^ (digest >> shift)) * prime & MASK
    return digest


def vbucket(seed, vbuckets, *parts):
    key = b"".join(struct.pack(">I", len(part)) + part for part in (part.encode() for part in parts))
    return xxh64(key, seed) % vbuckets


def main():
    with open(pathlib.Path(__file__).with_name("vbuckets.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        found = vbucket(int(row["seed"]), int(row["vbuckets"]), row["video_id"], row["user_id"])
        if found != int(row["vbucket"]):
            sys.exit(f"{row} gives {found}")
    print(f"{len(rows)} golden vbuckets hold")


main()
