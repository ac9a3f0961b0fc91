"""Cut the power while a campaign writes, and fill the disk at every write: what is lost?

A simulation. While a campaign is at work in a folder, `recorded` notes every change of a file or of
a name in it, and every time the disk is waited for. What SQLite does is seen from inside: its layer
for files (a VFS) is wrapped in functions that do the same and look at the folder after each step.

`after_cut` makes the folder as a disk may hold it when the power goes at some step. What was waited
for is there. Of the rest any part is there, in any order: a write, half a write that was cut at any
byte, a name without its content, a file that was removed and is back. scripts/faults.py counts.
"""
import contextlib
import ctypes
import os
import sqlite3
from ctypes import (CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p, cast, memmove,
                    pointer, sizeof)
from dataclasses import dataclass, field
from pathlib import Path

FULL, CREATE, JOURNAL = 13, 0x4, 0x800      # of SQLite: an error, two flags of a file


class Methods(ctypes.Structure):
    "What can be done with an open file (the first version; what follows is copied as it is)."
    _fields_ = [("version", c_int), ("close", c_void_p), ("read", c_void_p), ("write", c_void_p),
                ("truncate", c_void_p), ("sync", c_void_p), ("more", c_void_p*13)]


class Files(ctypes.Structure):
    "What can be done with names of files."
    _fields_ = [("version", c_int), ("size", c_int), ("longest", c_int), ("next", c_void_p),
                ("name", c_char_p), ("data", c_void_p), ("open", c_void_p), ("delete", c_void_p),
                ("more", c_void_p*14)]


TYPES = dict(write=CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
             truncate=CFUNCTYPE(c_int, c_void_p, c_int64),
             sync=CFUNCTYPE(c_int, c_void_p, c_int),
             open=CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
             delete=CFUNCTYPE(c_int, c_void_p, c_void_p, c_int))


def library():
    "The SQLite that Python's sqlite3 uses, or nothing if it cannot be reached."
    import _sqlite3
    try:
        found = ctypes.CDLL(_sqlite3.__file__)
        found.sqlite3_vfs_find.restype = POINTER(Files)
        found.sqlite3_vfs_register.argtypes = POINTER(Files), c_int
        found.sqlite3_vfs_unregister.argtypes = POINTER(Files),
        same = found.sqlite3_libversion
        same.restype = c_char_p
        return found if same().decode() == sqlite3.sqlite_version else None
    except (AttributeError, OSError): return None


@contextlib.contextmanager
def watched(step):
    """SQLite tells `step` what it does: (what, path or None, do), where do() does it.

    `what` is open, write, truncate, sync, sync_name or delete; step returns a code of SQLite."""
    found = library()
    plain = found.sqlite3_vfs_find(None)
    ours, kept, files = Files(), [], {}
    memmove(pointer(ours), plain, sizeof(Files))
    ours.name = b"watched"
    wrap = lambda name, f: kept.append(TYPES[name](f)) or cast(kept[-1], c_void_p).value
    original = {name: TYPES[name](getattr(plain.contents, name)) for name in ("open", "delete")}

    def methods_of(file):
        "The methods of an open file, with ours in front."
        table = cast(file, POINTER(POINTER(Methods)))
        at = ctypes.addressof(table.contents.contents)
        if at not in files:
            new = Methods()
            memmove(pointer(new), table.contents, sizeof(Methods))
            for name in ("write", "truncate", "sync"):
                do = TYPES[name](getattr(new, name))
                def call(file, *args, name=name, do=do):
                    again = name == "sync" and fresh.pop(file, False)
                    code = step(name, paths.get(file), lambda: do(file, *args))
                    if again and not code: step("sync_name", paths.get(file), lambda: 0)
                    return code
                setattr(new, name, wrap(name, call))
            files[at] = new
        table[0] = pointer(files[at])

    paths, fresh = {}, {}
    read = lambda name: ctypes.string_at(name).decode() if name else None   # SQLite keeps the place
    base = cast(plain, c_void_p)
    def open_file(vfs, name, file, flags, out):
        path = read(name)
        there = path is not None and os.path.exists(path)
        code = step("open", path, lambda: original["open"](base, name, file, flags, out))
        if not code:
            paths[file] = path
            fresh[file] = bool(flags & CREATE and flags & JOURNAL) and not there
            methods_of(file)
        return code
    def delete(vfs, name, wait):
        code = step("delete", read(name), lambda: original["delete"](base, name, wait))
        if wait and not code: step("sync_name", read(name), lambda: 0)
        return code

    ours.open, ours.delete = wrap("open", open_file), wrap("delete", delete)
    found.sqlite3_vfs_register(pointer(ours), 1)
    try: yield
    finally:
        found.sqlite3_vfs_unregister(pointer(ours))
        found.sqlite3_vfs_register(plain, 1)


# what happened in a folder

@dataclass
class Record:
    """Changes of files and names in a folder, in order, and what the disk held before them.

    Files and folders have numbers, the folder itself has 0; a name is (number of folder, text)."""
    root:Path
    steps:list = field(default_factory=list)

    def __post_init__(self):
        self.root = self.root.resolve()
        self.files, self.names, self.folders, self.known, self.count = {}, {}, {0}, {}, 0
        self.look()
        self.first, self.named, self.steps = dict(self.files), dict(self.names), []

    def look(self):
        "Note what has changed since the last look."
        names, todo = {}, [(self.root, 0)]
        for folder, above in todo:
            for p in sorted(folder.iterdir()):
                names[above, p.name] = k = self.number(p)
                if p.is_dir():
                    self.folders.add(k), todo.append((p, k))
                    continue
                old, new = self.files.get(k), p.read_bytes()
                if old != new: self.steps.append(("data", k, *change(old or b"", new)))
                self.files[k] = new
        gone = {p: k for p, k in self.names.items() if names.get(p) != k}
        come = {p: k for p, k in names.items() if self.names.get(p) != k}
        if gone or come: self.steps.append(("names", gone, come))
        there = set(names.values())
        self.files = {k: v for k, v in self.files.items() if k in there}
        self.known = {i: k for i, k in self.known.items() if k in there}
        self.names = names

    def number(self, path):
        "Of a file under all its names; the system's own numbers come again after a file is gone."
        i = path.lstat().st_ino
        if i not in self.known: self.known[i] = self.count = self.count + 1
        return self.known[i]

    def waited(self, path):
        "The content of a file, or the names in a folder, are on the disk now."
        self.look()
        path = Path(path).resolve()
        k = 0 if path == self.root else self.number(path)
        self.steps.append(("names_kept" if k in self.folders else "kept", k))


def change(old, new):
    "A shorter or longer file, or the part of it that differs: (place, bytes, length)."
    if new[:len(old)] == old: return len(old), new[len(old):], len(new)
    same = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    end = len(new)
    if len(old) == len(new):
        while end > same and old[end - 1] == new[end - 1]: end -= 1
    return same, new[same:end], len(new)


@contextlib.contextmanager
def recorded(root):
    "A `Record` of what happens in a folder inside the block."
    record, plain = Record(Path(root)), {}
    inside = lambda path: Path(path).resolve().is_relative_to(record.root)

    def step(what, path, do):
        code = do()
        if path is None or not inside(os.fsdecode(path)): return code
        if what == "sync": record.waited(path)
        elif what == "sync_name": record.waited(Path(path).parent)
        else: record.look()
        return code

    def patched(name):
        def call(*args, **options):
            out = plain[name](*args, **options)
            if name == "fsync": path = os.readlink(f"/proc/self/fd/{args[0]}")
            if name == "fsync" and inside(path): record.waited(path)
            if name != "fsync": record.look()
            return out
        return call

    for name in ("fsync", "link", "replace", "rename", "unlink", "mkdir", "rmdir"):
        plain[name] = getattr(os, name)
        setattr(os, name, patched(name))
    try:
        with watched(step): yield record
        record.look()
    finally:
        for name, f in plain.items(): setattr(os, name, f)


# what a disk may hold

def written(content, at, data, length, rng=None):
    "A file after a write; with a source of randomness, after a part of it."
    out = bytearray(content)
    if rng is not None:
        cut = int(rng.integers(len(data) + 1))
        if rng.integers(2): data = data[:cut]
        else: at, data = at + cut, data[cut:]
    if len(out) < at + len(data): out.extend(bytes(at + len(data) - len(out)))
    out[at:at + len(data)] = data
    return bytes(out[:length])


def after_cut(record, end, rng, to, waits=True):
    """The folder as a disk may hold it if the power goes before step `end`; written into `to`.

    waits: whether the disk tells the truth when it is waited for"""
    files, names = dict(record.first), dict(record.named)
    data, moves = [], []
    for step in record.steps[:end]:
        what, *rest = step
        if what == "data": data.append(rest)
        elif what == "names": moves.append([dict(part) for part in rest])
        elif what == "kept" and waits:
            for k, *change_ in (d for d in data if d[0] == rest[0]):
                files[k] = written(files.get(k, b""), *change_)
            data = [d for d in data if d[0] != rest[0]]
        elif what == "names_kept" and waits:
            for gone, come in moves:
                for p in [p for p in gone if p[0] == rest[0]]: names.pop(p, None), gone.pop(p)
                for p in [p for p in come if p[0] == rest[0]]: names[p] = come.pop(p)
    share = rng.choice([0., 0.5, 1.])
    for k, *change_ in data:
        if rng.random() < share:
            files[k] = written(files.get(k, b""), *change_,
                               rng if rng.random() < 0.5 else None)
    for gone, come in moves:
        if rng.random() >= share: continue
        for p in gone: names.pop(p, None)
        names |= come
    todo = [(to, 0)]
    for folder, above in todo:
        for (at, name), k in names.items():
            if at != above: continue
            if k not in record.folders: (folder/name).write_bytes(files.get(k, b""))
            else:
                (folder/name).mkdir()
                todo.append((folder/name, k))
    return to


# a disk that is full

@contextlib.contextmanager
def full_from(first, last=10**9):
    "The disk has no room from one write of SQLite on, up to another; yields the number of writes."
    count = [0]
    def step(what, path, do):
        if what != "write": return do()
        count[0] += 1
        return FULL if first <= count[0] <= last else do()
    with watched(step): yield count
