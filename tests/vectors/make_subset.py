"""make_subset.py IN.safetensors OUT.safetensors PREFIX...: the arrays of IN whose names are or begin with one of the prefixes, copied byte for byte."""
import json, struct, sys

source, target, prefixes = sys.argv[1], sys.argv[2], tuple(sys.argv[3:])
with open(source, "rb") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    header, data = json.loads(f.read(size)), f.read()
out, pieces, at = {}, [], 0
for name, entry in header.items():
    if name == "__metadata__" or not name.startswith(prefixes):
        continue
    begin, end = entry["data_offsets"]
    out[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": [at, at + end - begin]}
    pieces.append(data[begin:end])
    at += end - begin
text = json.dumps(out).encode()
text += b" " * (-len(text) % 8)
with open(target, "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(pieces))
