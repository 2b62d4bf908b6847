# needs: gguf==0.19.* safetensors==0.8.* tokenizers==0.23.3 numpy
"""writers_peer.py - the files that `clover synth` writes, read by the public `gguf`, `safetensors` and `tokenizers` packages.

    writers_peer.py [CLOVER]          # build/clover when not given; writes under build/peers/work

Every tensor type, split files, shards: names, shapes, types and keys as said, and values that agree across forms by the
rules of SPEC TEN, written here a second time with numpy. Exit status: 0 all as it should be, 1 not."""
import glob, json, os, subprocess, sys

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors import safe_open
from tokenizers import Tokenizer

clover = sys.argv[1] if len(sys.argv) > 1 else "build/clover"
work = "build/peers/work/writers"
failures = 0


def check(good, what):
    global failures
    if not good:
        failures += 1
        print("  wrong:", what)


def synth(name, *flags):
    out = os.path.join(work, name)
    subprocess.run([clover, "synth", "-o", out, "--force", *flags], check=True, stderr=subprocess.DEVNULL)
    return out


def key(reader, name):
    return reader.fields[name].contents()


def values(tensor):
    """As float64, [rows, columns] slowest first."""
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float64).reshape([int(n) for n in reversed(tensor.shape)])


def folder_values(folder):
    out = {}
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        with safe_open(path, framework="np") as f:
            out.update({name: f.get_tensor(name).astype(np.float64) for name in f.keys()})
    return out


SHAPE = "--layers 2 --interval 2 --hidden 256 --heads 4 --kv-heads 2 --head-width 64 --rotary-dims 16 " \
        "--key-heads 2 --value-heads 6 --value-width 128 --expert-width 256 --shared-width 256 --seed 21".split()
HEADS = [0, 3, 1, 4, 2, 5]                     # HF's value head at each place of a GGUF, for 2 key heads and 6 value heads
BLOCK_TYPES = "q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs".split()


def block_types():
    for name in BLOCK_TYPES:
        reader = GGUFReader(synth(f"{name}.gguf", *SHAPE, "--type", name))
        seen = 0
        for t in reader.tensors:
            if t.tensor_type.name.lower() != name:
                check(t.tensor_type.name == "F32" and (len(t.shape) == 1 or "conv" in t.name or "gate_inp" in t.name),
                    f"{name}: {t.name} is {t.tensor_type.name}")
                continue
            x = values(t)
            wanted = {"token_embd.weight": 1, "output.weight": 12 / 16}.get(t.name,
                (1.5 if "attn_q.weight" in t.name else 1) / np.sqrt(x.shape[-1]))
            rms = float(np.sqrt(np.mean(x * x)))
            spread = 1.25 if x.size >= 65536 else 2                # few blocks, few scales
            check(np.isfinite(x).all() and 1 / spread < rms / wanted < spread,
                f"{name}: {t.name} has rms {rms}, {wanted} was meant")
            seen += 1
        check(seen == 23, f"{name}: {seen} tensors of this type")
    print(f"  {len(BLOCK_TYPES)} block types: 23 tensors each, finite, of the right scale")


def one_model():
    """One seed, eight files: every value the same, or related as SPEC TEN says."""
    f32 = GGUFReader(synth("f32.gguf", *SHAPE))
    gguf = {t.name: values(t) for t in f32.tensors}
    for name in "f16", "bf16":
        other = {t.name: values(t) for t in GGUFReader(synth(f"{name}.gguf", *SHAPE, "--type", name)).tensors}
        check(other.keys() == gguf.keys() and all(np.array_equal(other[k], gguf[k]) for k in gguf),
            f"{name}.gguf differs from f32.gguf")
    synth("split.gguf", *SHAPE, "--split-size", "1M")
    parts = sorted(glob.glob(work + "/split-*.gguf"))
    split = {t.name: values(t) for p in parts for t in GGUFReader(p).tensors}
    check(len(parts) > 3 and split.keys() == gguf.keys() and all(np.array_equal(split[k], gguf[k]) for k in gguf),
        "the split file differs")
    check(key(GGUFReader(parts[-1]), "split.count") == len(parts), "split.count")

    hf = folder_values(synth("hf", *SHAPE))
    for name, flags in ("hf-f16", ["--type", "f16", "--split-size", "1M"]), ("hf-bf16", ["--type", "bf16"]):
        if name == "hf-bf16":                                  # numpy has no bfloat16: its bits are float32's upper half
            folder = synth(name, *SHAPE, *flags)
            raw = open(folder + "/model.safetensors", "rb").read()
            n = int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8:8 + n])
            other = {}
            for k, t in header.items():
                if k != "__metadata__":
                    begin, end = t["data_offsets"]
                    bits = np.frombuffer(raw[8 + n + begin:8 + n + end], np.uint16).astype(np.uint32) << 16
                    other[k] = bits.view(np.float32).astype(np.float64).reshape(t["shape"])
        else:
            other = folder_values(synth(name, *SHAPE, *flags))
        check(other.keys() == hf.keys() and all(np.array_equal(other[k], hf[k]) for k in hf), f"{name} differs from hf")

    keys, width = 2 * 2 * 16, 128                              # q and k channels; rows of a value head
    tile = lambda x, n: x.reshape(6, n, *x.shape[1:])[HEADS].reshape(x.shape)
    channels = lambda x: np.concatenate([x[:keys], tile(x[keys:], width)])
    p, g = "model.layers.0.linear_attn.", "blk.0."
    m = "model.layers.0.mlp."
    expected = {
        "token_embd.weight": hf["model.embed_tokens.weight"],
        "output.weight": hf["lm_head.weight"],
        "output_norm.weight": 1 + hf["model.norm.weight"],
        g + "attn_norm.weight": 1 + hf["model.layers.0.input_layernorm.weight"],
        g + "post_attention_norm.weight": 1 + hf["model.layers.0.post_attention_layernorm.weight"],
        g + "attn_qkv.weight": channels(hf[p + "in_proj_qkv.weight"]),
        g + "attn_gate.weight": tile(hf[p + "in_proj_z.weight"], width),
        g + "ssm_beta.weight": tile(hf[p + "in_proj_b.weight"], 1),
        g + "ssm_alpha.weight": tile(hf[p + "in_proj_a.weight"], 1),
        g + "ssm_conv1d.weight": channels(hf[p + "conv1d.weight"][:, 0, :]),
        g + "conv_right_weight": channels(hf[p + "conv_right_weight"]),
        g + "ssm_dt.bias": tile(hf[p + "dt_bias"], 1),
        g + "ssm_norm.weight": hf[p + "norm.weight"],
        g + "ssm_out.weight": tile(hf[p + "out_proj.weight"].T, width).T,
        g + "bd_softmax_logit_scale": tile(hf[p + "bd_softmax_logit_scale"], 1),
        g + "bd_softmax_history_bias": tile(hf[p + "bd_softmax_history_bias"], 1),
        g + "bd_softmax_history_c": tile(hf[p + "bd_softmax_history_c"], 1),
        g + "ffn_gate_inp.weight": hf[m + "gate.weight"],
        g + "ffn_gate_exps.weight": hf[m + "experts.gate_up_proj"][:, :256],
        g + "ffn_up_exps.weight": hf[m + "experts.gate_up_proj"][:, 256:],
        g + "ffn_down_exps.weight": hf[m + "experts.down_proj"],
        g + "ffn_gate_inp_shexp.weight": hf[m + "shared_expert_gate.weight"][0],
        "blk.1.attn_q.weight": hf["model.layers.1.self_attn.q_proj.weight"],
        "blk.1.attn_q_norm.weight": 1 + hf["model.layers.1.self_attn.q_norm.weight"],
        "blk.1.attn_output.weight": hf["model.layers.1.self_attn.o_proj.weight"],
    }
    for name, x in expected.items():
        check(np.array_equal(gguf[name], x), f"{name} is not what the folder's tensor gives")
    a = tile(-np.exp(hf[p + "A_log"]), 1).astype(np.float32)
    check(np.array_equal(gguf[g + "ssm_a"].astype(np.float32), a), "blk.0.ssm_a is not the float32 nearest to -exp(A_log)")

    check(key(f32, "general.architecture") == "clover_moe" and key(f32, "clover_moe.expert_shared_count") == 1,
        "the architecture's keys")
    check(key(f32, "clover_moe.diffusion.head_order") == "tiled" and key(f32, "clover_moe.diffusion.threshold") == 0.95,
        "the diffusion keys")
    tokens = key(f32, "tokenizer.ggml.tokens")
    tokenizer = Tokenizer.from_file(work + "/hf/tokenizer.json")
    check(tokens == [tokenizer.id_to_token(i) for i in range(len(tokens))], "the tokens of the GGUF and of the folder")
    text = "Hello, wörld! 日本 \n\t<|im_end|>"
    check(tokenizer.encode(text).ids == list(text.replace("<|im_end|>", "").encode()) + [258], "ids of a text")
    check(tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text, "the text of ids")
    print(f"  one seed as 3 GGUFs, {len(parts)} parts, 3 folders: equal;",
          f"{len(expected) + 1} tensors related as SPEC TEN says; the tokenizer agrees")


os.makedirs(work, exist_ok=True)
block_types()
one_model()
print("writers: " + ("agree" if failures == 0 else f"{failures} wrong"))
sys.exit(failures != 0)
