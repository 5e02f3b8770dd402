"""What a disk may hold after a power cut: the log that record.c wrote is replayed up to a place, and of what was not synced by then
some is lost. Files and folders are synced each by itself, as POSIX has it: the contents of a file by its fsync, its name by that of its
folder."""

import os
import struct

RECORD = struct.Struct("c7xQqqII")
SECTOR = 512  # bytes that are written whole


class Entry:
    """A record; `data` is where its bytes lie in the log."""

    def __init__(self, log, at):
        what, self.file, self.offset, self.size, name, to = RECORD.unpack_from(log, at)
        self.what, at = what.decode(), at + RECORD.size
        self.name, at = log[at : at + name].decode(), at + name
        self.to, at = log[at : at + to].decode(), at + to
        self.data, self.end = at, at + max(self.size, 0)


def entries_of(path):
    """All of a log, and its bytes."""
    with open(path, "rb") as file:
        log = file.read()
    found, at = [], 0
    while at < len(log):
        found.append(Entry(log, at))
        at = found[-1].end
    return found, log


class File:
    def __init__(self):
        self.changes, self.synced = [], 0  # ("w", offset, data, size) or ("t", size); how many of them are synced

    def sync(self):
        self.synced = len(self.changes)

    def bytes_after(self, log, changes):
        content = bytearray()
        for what, offset, data, size in changes:
            if what == "t":
                content = content[:offset] + bytes(max(0, offset - len(content)))
            else:
                content += bytes(max(0, offset - len(content)))
                content[offset : offset + size] = log[data : data + size]
        return bytes(content)

    def after_a_cut(self, log, chance):
        kept, open_ = self.changes[: self.synced], self.changes[self.synced :]
        manner = chance.choice(["none", "all", "some", "torn", "zeros"])
        if manner == "all":
            kept = self.changes
        elif manner == "some":
            kept = kept + [each for each in open_ if chance.random() < 0.5]
        elif manner == "torn" and open_:
            count = chance.randrange(len(open_))
            what, offset, data, size = open_[count]
            part = size // SECTOR * chance.random() // 1 * SECTOR if what == "w" else size
            kept = kept + open_[:count] + [(what, offset, data, int(part))]
        content = self.bytes_after(log, kept)
        if manner == "zeros":  # its length is on the disk, its bytes are not
            content += bytes(max(0, len(self.bytes_after(log, self.changes)) - len(content)))
        return content


class Folder:
    def __init__(self):
        self.names, self.changes, self.synced = {}, [], 0  # each change one of Change, maybe of two folders

    def sync(self):
        for change in self.changes[self.synced :]:
            change.synced = True
        self.synced = len(self.changes)


class Change:
    """Of names in folders, all of them or none: {folder: {name: what it is, or None}}."""

    def __init__(self, of):
        self.of, self.synced = of, False
        for folder, names in of.items():
            folder.changes.append(self)
            for name, node in names.items():
                if node is None:
                    folder.names.pop(name, None)
                else:
                    folder.names[name] = node


class Disk:
    """Below one root, which is there."""

    def __init__(self, root, log):
        self.root, self.log = os.path.normpath(root), log
        self.top, self.by_inode = Folder(), {}

    def place(self, path):
        """Its folder, and its name there; none of the root."""
        words = os.path.relpath(os.path.normpath(path), self.root).split("/")
        folder = self.top
        for word in words[:-1]:
            folder = folder.names[word]
        return (folder, words[-1]) if words != ["."] else (None, "")

    def apply(self, entry):
        folder, name = self.place(entry.name)
        if folder is None:
            if entry.what == "s":
                self.top.sync()
            return
        node = folder.names.get(name)
        if entry.what in "cm":
            node = File() if entry.what == "c" else Folder()
            self.by_inode[entry.file] = node
            Change({folder: {name: node}})
        elif entry.what == "u":
            Change({folder: {name: None}})
        elif entry.what in "nx":
            to, new_name = self.place(entry.to)
            instead = to.names.get(new_name) if entry.what == "x" else None
            names = {folder: {name: instead}}
            names.setdefault(to, {})[new_name] = node
            Change(names)
        elif entry.what == "s":
            (node if isinstance(node, Folder) else self.by_inode[entry.file]).sync()
        else:
            self.by_inode[entry.file].changes.append((entry.what, entry.offset, entry.data, entry.size))

    def write(self, target, chance=None):
        """Makes `target` what a cut leaves, or all of it where there is no chance."""
        share = chance.choice([0.0, 0.3, 0.7, 1.0]) if chance else 1.0
        kept = {}  # of names, by change

        def is_kept(change):
            return change.synced or kept.setdefault(change, chance is None or chance.random() < share)

        def make(folder, path):
            os.makedirs(path, exist_ok=True)
            names = {}
            for change in filter(is_kept, folder.changes):
                names.update(change.of[folder])
            for name, node in names.items():
                inner = os.path.join(path, name)
                if isinstance(node, Folder):
                    make(node, inner)
                elif node is not None:
                    with open(inner, "wb") as file:
                        file.write(node.after_a_cut(self.log, chance) if chance else node.bytes_after(self.log, node.changes))

        make(self.top, target)
