"""batched.py - the training form: causal rows of many sequences and blocks over their prefixes in one differentiable pass.

It runs model.py's modules and gives their numbers (tests/peers/peer_twin.py checks that), in parallel over rows: with G the
running sum of g, the delta rule's d solve (I + A) d = β v, A[i,j] = β_i e^(G_i - G_j) k_i·k_j for j < i; what row t reads of
the state after s rows is Σ_{j<s} e^(G_{s-1} - G_j) (k_j·q_t) d_j. So no S is ever made.

All rows, causal ones and those of blocks, stand in one flat [N, D]; only mixers look across rows.
"""
import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F


@dataclass
class Block:
    """One block a sequence: ids [B, n] at position start [B], of which the first `start` causal rows are the prefix."""
    ids: torch.Tensor
    start: torch.Tensor
    top_p: float | None = None


class Rows:
    """Where the causal rows [B, T] and each block's rows [B, n] stand in the flat array."""

    def __init__(self, ids, blocks):
        self.shapes = [ids.shape] + [block.ids.shape for block in blocks]
        self.sizes = [b * n for b, n in self.shapes]

    def split(self, flat):
        return [part.unflatten(0, shape) for part, shape in zip(flat.split(self.sizes), self.shapes)]

    def join(self, parts):
        return torch.cat([part.flatten(0, 1) for part in parts])


def attention(module, x, rows, blocks, positions):
    c = module.c
    q, gate, k, v = module.project(x)
    q = module.rotate(module.q_norm(q), positions)
    k = module.rotate(module.k_norm(k), positions)
    q, k, v = ([part.transpose(1, 2) for part in rows.split(t)] for t in (q, k, v))                 # [B, heads, T, width]
    group = c.heads // c.kv_heads
    k, v = ([part.repeat_interleave(group, 1) for part in t] for t in (k, v))
    scale = 1 / math.sqrt(c.head_width)
    contexts = [F.scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True, scale=scale)]
    past = torch.arange(k[0].shape[2])
    for i, block in enumerate(blocks, 1):
        n = block.ids.shape[1]
        visible = F.pad(past[None, :] < block.start[:, None], (0, n), value=True)[:, None, None, :]  # [B, 1, 1, T + n]
        contexts.append(F.scaled_dot_product_attention(q[i], torch.cat((k[0], k[i]), 2), torch.cat((v[0], v[i]), 2),
                                                       attn_mask=visible, scale=scale))
    context = rows.join([part.transpose(1, 2) for part in contexts])
    return module.o_proj((context * gate.sigmoid()).flatten(-2))


def conv(module, ring, u, right=False):
    """module.conv as one depthwise convolution, three times as fast: u [B, T, C] behind ring [B, taps-1, C]."""
    weight = module.conv1d.weight
    if right:
        u, weight = F.pad(u, (0, 0, 0, module.c.taps - 1)), torch.cat((weight, module.conv_right_weight[:, None]), 2)
    e = torch.cat((ring, u), 1).transpose(1, 2)[:, :, None].contiguous(memory_format=torch.channels_last)   # [B, C, 1, rows]
    return F.silu(F.conv2d(e, weight[:, :, None], groups=module.c.conv_channels)[:, :, 0].transpose(1, 2))


def delta_net(module, x, rows, blocks):
    c = module.c
    u = rows.split(module.in_proj_qkv(x))
    z = module.in_proj_z(x).unflatten(-1, (c.value_heads, c.value_width))
    beta, g = (rows.split(t) for t in module.gates(x))
    B = u[0].shape[0]
    padded = F.pad(u[0], (0, 0, c.taps - 1, 0))                                                     # [B, taps-1 + T, C]
    convs = [conv(module, padded[:, :c.taps - 1], u[0])]
    for i, block in enumerate(blocks, 1):
        at = block.start[:, None] + torch.arange(c.taps - 1)                                        # rows start - (taps-1) … start - 1
        convs.append(conv(module, padded[torch.arange(B)[:, None], at], u[i], right=True))
    q, k, v = (rows.split(t) for t in module.split(rows.join(convs)))
    q, k = ([module.spread(part).transpose(1, 2) for part in t] for t in (q, k))                    # [B, Hv, T, dk]
    v = [part.transpose(1, 2) for part in v]                                                        # [B, Hv, T, dv]

    T = q[0].shape[2]
    G = g[0].cumsum(1).transpose(1, 2)                                                              # [B, Hv, T]
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    decay = (G[..., :, None] - G[..., None, :]).masked_fill(~causal, -torch.inf).exp()
    b = beta[0].transpose(1, 2)[..., None]
    A = b * decay * (k[0] @ k[0].transpose(-1, -2))
    d = torch.linalg.solve_triangular(A, b * v[0], upper=False, unitriangular=True)                 # the diagonal is not read
    scale = 1 / math.sqrt(c.key_width)
    mixed = [(decay * (q[0] @ k[0].transpose(-1, -2)) @ d * scale).transpose(1, 2)]
    for i, block in enumerate(blocks, 1):
        before = torch.arange(T) < block.start[:, None, None]                                       # [B, 1, T]
        last = G.gather(-1, (block.start - 1).clamp(min=0)[:, None, None].expand(-1, c.value_heads, 1))
        left = (last - G).masked_fill(~before, -torch.inf).exp()                                    # [B, Hv, T]
        history = (q[i] @ k[0].transpose(-1, -2) * left[..., None, :]) @ d * scale                  # [B, Hv, n, dv]
        history = history * g[i].transpose(1, 2).exp()[..., None]
        weights = module.block_weights(q[i].transpose(1, 2), k[i].transpose(1, 2)).transpose(1, 2)  # [B, Hv, n, n + 1]
        mixed.append((weights[..., :-1] @ v[i] + weights[..., -1:] * history).transpose(1, 2))
    return module.output(rows.join(mixed), z)[1]


def mixture(module, x, rows, blocks):
    """The output [N, D], and the balance loss: E · Σ share of choices · mean probability, 1 when even."""
    c = module.c
    probs = module.gate(x).softmax(-1)
    allowed = probs
    if any(block.top_p is not None for block in blocks):
        parts = rows.split(probs)
        for i, block in enumerate(blocks, 1):
            if block.top_p is not None:
                parts[i] = parts[i].masked_fill(~module.coreset(parts[i].detach(), block.top_p)[:, None], 0)
        allowed = rows.join(parts)
    weights, ids = allowed.topk(c.experts_used)                                                     # 0 where fewer are kept
    weights = weights / weights.sum(-1, keepdim=True)
    order = ids.flatten().argsort(stable=True)                                                      # (row, place) pairs by expert
    counts = torch.bincount(ids.flatten(), minlength=c.experts)
    parts = x.index_select(0, order // c.experts_used).split(counts.tolist())
    outs = torch.cat([module.expert(e, part) for e, part in enumerate(parts)])
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    routed = (outs.index_select(0, back).unflatten(0, ids.shape) * weights[..., None]).sum(1)
    balance = c.experts * (counts / len(order) * probs.mean(0)).sum()
    return routed + module.shared_expert_gate(x).sigmoid() * module.shared_expert(x), balance


def forward(model, ids, blocks):
    """ids [B, T]. Returns the causal final rows [B, T, D] and each block's [B, n, D], to be given to model.head, and the
    balance loss."""
    rows = Rows(ids, blocks)
    B, T = ids.shape
    places = [torch.arange(T).expand(B, T)] + [block.start[:, None] + torch.arange(block.ids.shape[1]) for block in blocks]
    positions = rows.join(places)
    h = model.model.embed_tokens(rows.join([ids] + [block.ids for block in blocks]))
    balance = 0
    for layer in model.model.layers:
        x = layer.input_layernorm(h)
        if layer.full_attention:
            h = h + attention(layer.self_attn, x, rows, blocks, positions)
        else:
            h = h + delta_net(layer.linear_attn, x, rows, blocks)
        out, loss = mixture(layer.mlp, layer.post_attention_layernorm(h), rows, blocks)
        h, balance = h + out, balance + loss / len(model.model.layers)
    first, *others = rows.split(model.model.norm(h))
    return first, others, balance
