"""model.py - Clover's modules and its plain form: causal steps and previews, one sequence, every probe.

The modules carry Hugging Face's names, so that a state_dict is a model folder's tensors. Labels such as [GDN-4] are
SPEC.md's rules. The plain form reads like them and is slow; batched.py runs the same modules on many sequences.

Shapes: T rows of a step, n of a block, D hidden size, V vocabulary, H query heads, Hkv KV heads, Hk and Hv GDN key and value
heads of widths dk and dv, r = Hv / Hk, C conv channels, E experts, k of which a row chooses, F their width. A leading `…`
stands for any dims, none included.
"""
import math
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F

L2_EPSILON = 1e-6                                                   # [CFG-4]: by definition, in no file
HISTORY_ROWS = 32                                                   # [PRV-4]: a constant, not the block size


@dataclass
class Config:
    """A model's numbers, [CFG-2]; under config.json's names where SPEC.md has no letter."""
    hidden_size: int
    vocab_size: int
    full_attention: list                                            # per layer: full attention, else GDN
    heads: int
    kv_heads: int
    head_width: int
    rotary_dims: int
    rope_base: float
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    taps: int
    experts: int
    experts_used: int
    expert_width: int
    shared_width: int
    epsilon: float
    context: int
    tied: bool = False
    diffusion: bool = True                                          # has the four diffusion tensors a layer
    block_size: int = 32
    mask_id: int | None = None
    threshold: float = 0.95
    coreset_top_p: float | None = None                              # None: off
    stop_ids: list = field(default_factory=list)
    controls: dict = field(default_factory=dict)

    @property
    def conv_channels(self):
        return 2 * self.key_heads * self.key_width + self.value_heads * self.value_width


# ---- rows ----------------------------------------------------------------------------------------------------------


def l2(x):                                                          # [ROW-2]
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + L2_EPSILON)


def softplus(x):                                                    # [ROW-4]
    return torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp(max=20))))


class Norm(nn.Module):
    """RMSNorm, [ROW-1]. Its factor is 1 + weight, or the weight as it is in GDN's head norm [TEN-5]."""

    def __init__(self, width, epsilon, plain=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width) if plain else torch.zeros(width))
        self.epsilon, self.plain = epsilon, plain

    def forward(self, x):
        factor = self.weight if self.plain else 1 + self.weight
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.epsilon) * factor


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


# ---- state ---------------------------------------------------------------------------------------------------------


@dataclass
class LayerState:
    keys: torch.Tensor | None = None                                # [position, Hkv, width], rotated
    values: torch.Tensor | None = None                              # [position, Hkv, width]
    ring: torch.Tensor | None = None                                # [taps-1, C], raw u rows, oldest first
    S: torch.Tensor | None = None                                   # [Hv, dk, dv]


@dataclass
class State:
    """[STA-1]. A step makes a new one and changes nothing in it, so that keeping it is a snapshot [STA-4]."""
    position: int
    layers: list


# ---- layers --------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = linear(c.hidden_size, c.heads * 2 * c.head_width)
        self.k_proj = linear(c.hidden_size, c.kv_heads * c.head_width)
        self.v_proj = linear(c.hidden_size, c.kv_heads * c.head_width)
        self.o_proj = linear(c.heads * c.head_width, c.hidden_size)
        self.q_norm = Norm(c.head_width, c.epsilon)
        self.k_norm = Norm(c.head_width, c.epsilon)

    def project(self, x):
        """q and gate [… H, width], k and v [… Hkv, width]."""
        c = self.c
        q, gate = self.q_proj(x).unflatten(-1, (c.heads, 2, c.head_width)).unbind(-2)              # [ATT-1]
        k, v = (p(x).unflatten(-1, (c.kv_heads, c.head_width)) for p in (self.k_proj, self.v_proj))
        return q, gate, k, v

    def rotate(self, x, positions):
        """x [… heads, width] at positions […], [ATT-3]."""
        half = self.c.rotary_dims // 2
        power = torch.arange(half, dtype=x.dtype) * (-2 / self.c.rotary_dims)
        angle = positions[..., None].to(x.dtype) * self.c.rope_base ** power
        cos, sin = angle.cos()[..., None, :], angle.sin()[..., None, :]                             # […, 1, half]: over heads
        a, b = x[..., :half], x[..., half:2 * half]
        return torch.cat((a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]), -1)

    def plain(self, x, state, position, causal, tap):
        """x [T, D] after `position` rows. Returns the output and the layer's next state."""
        c, T = self.c, len(x)
        q, gate, k, v = self.project(x)
        tap('attn.q', q), tap('attn.gate', gate), tap('attn.k', k), tap('attn.v', v)
        q, k = self.q_norm(q), self.k_norm(k)                                                       # [ATT-2]
        tap('attn.q_norm', q), tap('attn.k_norm', k)
        positions = torch.arange(position, position + T)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        tap('attn.q_rope', q), tap('attn.k_rope', k)
        keys, values = torch.cat((state.keys, k)), torch.cat((state.values, v))                     # [position + T, Hkv, width]
        group = c.heads // c.kv_heads                                                               # [ATT-4]
        scores = torch.einsum('thw,shw->hts', q, keys.repeat_interleave(group, 1)) / math.sqrt(c.head_width)
        if causal:                                                                                  # [ATT-5]; a preview sees all, [ATT-6]
            visible = torch.arange(position + T)[None, :] <= positions[:, None]
            scores = scores.masked_fill(~visible, -torch.inf)
        context = torch.einsum('hts,shw->thw', scores.softmax(-1), values.repeat_interleave(group, 1))
        tap('attn.context', context)
        gated = context * gate.sigmoid()                                                            # [ATT-7]
        tap('attn.gated', gated)
        return self.o_proj(gated.flatten(-2)), LayerState(keys=keys, values=values)


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        values = c.value_heads * c.value_width
        self.in_proj_qkv = linear(c.hidden_size, c.conv_channels)
        self.in_proj_z = linear(c.hidden_size, values)
        self.in_proj_b = linear(c.hidden_size, c.value_heads)
        self.in_proj_a = linear(c.hidden_size, c.value_heads)
        self.conv1d = nn.Module()
        self.conv1d.weight = nn.Parameter(torch.zeros(c.conv_channels, 1, c.taps))
        self.dt_bias = nn.Parameter(torch.zeros(c.value_heads))
        self.A_log = nn.Parameter(torch.zeros(c.value_heads))
        self.norm = Norm(c.value_width, c.epsilon, plain=True)
        self.out_proj = linear(values, c.hidden_size)
        if c.diffusion:                                                                             # [TEN-3]
            self.conv_right_weight = nn.Parameter(torch.zeros(c.conv_channels, c.taps - 1))
            self.bd_softmax_logit_scale = nn.Parameter(torch.ones(c.value_heads))
            self.bd_softmax_history_bias = nn.Parameter(torch.zeros(c.value_heads))
            self.bd_softmax_history_c = nn.Parameter(torch.zeros(c.value_heads))

    def gates(self, x):
        """beta and g [… Hv], [GDN-2]."""
        beta = self.in_proj_b(x).sigmoid()
        return beta, -self.A_log.exp() * softplus(self.in_proj_a(x) + self.dt_bias)

    def conv(self, ring, u, right=False):
        """SiLU of the conv over rows u [… T, C] behind ring [… taps-1, C]: [GDN-3]; with `right` [PRV-2]."""
        taps, T = self.c.taps, u.shape[-2]
        e = torch.cat((ring, u), -2)                                                                # [… taps-1 + T, C]
        y = sum(self.conv1d.weight[:, 0, j] * e[..., j:j + T, :] for j in range(taps))
        if right:
            after = F.pad(u, (0, 0, 0, taps - 1))                                                   # rows past the block's end: 0
            y = y + sum(self.conv_right_weight[:, d - 1] * after[..., d:d + T, :] for d in range(1, taps))
        return F.silu(y)

    def split(self, conv):
        """q̂ and k̂ [… Hk, dk], v [… Hv, dv], [GDN-4]."""
        c = self.c
        keys = c.key_heads * c.key_width
        q, k, v = conv.split((keys, keys, c.value_heads * c.value_width), -1)
        q, k = (l2(t.unflatten(-1, (c.key_heads, c.key_width))) for t in (q, k))
        return q, k, v.unflatten(-1, (c.value_heads, c.value_width))

    def spread(self, x):
        """[… Hk, dk] for each value head, [GDN-5]: [… Hv, dk]."""
        return x.repeat_interleave(self.c.value_heads // self.c.key_heads, -2)

    def output(self, mixed, z):
        """mixed and z [… Hv, dv], [GDN-7]: the gated heads, and the layer's output [… D]."""
        gated = self.norm(mixed) * F.silu(z)
        return gated, self.out_proj(gated.flatten(-2))

    def plain(self, x, state, position, causal, tap):
        c = self.c
        u = self.in_proj_qkv(x)                                                                     # [GDN-1]
        z = self.in_proj_z(x).unflatten(-1, (c.value_heads, c.value_width))
        tap('gdn.qkv', u), tap('gdn.z', z)
        beta, g = self.gates(x)
        tap('gdn.beta', beta), tap('gdn.g', g)
        conv = self.conv(state.ring, u, right=not causal)
        tap('gdn.conv', conv)
        q, k, v = self.split(conv)
        tap('gdn.q', q), tap('gdn.k', k), tap('gdn.v', v)
        q, k = self.spread(q), self.spread(k)
        if causal:
            mixed, S = self.delta_rule(q, k, v, beta, g, state.S)
            tap('gdn.state', S)
            state = LayerState(ring=torch.cat((state.ring, u))[-(c.taps - 1):] if c.taps > 1 else state.ring, S=S)
        else:
            weights = self.block_weights(q, k)
            tap('gdn.block_weights', weights)
            history = torch.einsum('hkv,thk->thv', state.S, q) / math.sqrt(c.key_width) * g.exp()[..., None]
            mixed = torch.einsum('ths,shv->thv', weights[..., :-1], v) + weights[..., -1:] * history  # [PRV-6]
        tap('gdn.mixed', mixed)
        gated, out = self.output(mixed, z)
        tap('gdn.gated', gated)
        return out, state

    def delta_rule(self, q, k, v, beta, g, S):
        """[GDN-6], row by row. q, k [T, Hv, dk]; v [T, Hv, dv]; S [Hv, dk, dv]. Returns o [T, Hv, dv] and S after."""
        rows = []
        for t in range(len(q)):
            S = g[t].exp()[:, None, None] * S
            d = beta[t, :, None] * (v[t] - torch.einsum('hkv,hk->hv', S, k[t]))
            S = S + k[t, :, :, None] * d[:, None, :]
            rows.append(torch.einsum('hkv,hk->hv', S, q[t]) / math.sqrt(self.c.key_width))
        return torch.stack(rows), S

    def block_weights(self, q, k):
        """Softmax over the n rows of a block and the history, which is last: [… n, Hv, n + 1]. [PRV-3] to [PRV-5]."""
        n = q.shape[-3]
        rows = torch.einsum('...thk,...shk->...ths', q, k) * self.bd_softmax_logit_scale[:, None]
        history = self.bd_softmax_history_bias + self.bd_softmax_history_c * math.log(n / HISTORY_ROWS)
        return torch.cat((rows, history[:, None].expand(*rows.shape[:-1], 1)), -1).softmax(-1)


class Expert(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj, self.up_proj = linear(hidden, width), linear(hidden, width)
        self.down_proj = linear(width, hidden)

    def forward(self, x):                                                                           # [MOE-3]
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.gate = linear(c.hidden_size, c.experts)
        self.experts = nn.Module()
        self.experts.gate_up_proj = nn.Parameter(torch.zeros(c.experts, 2 * c.expert_width, c.hidden_size))
        self.experts.down_proj = nn.Parameter(torch.zeros(c.experts, c.hidden_size, c.expert_width))
        self.shared_expert = Expert(c.hidden_size, c.shared_width)
        self.shared_expert_gate = linear(c.hidden_size, 1)

    def expert(self, e, x):                                                                         # [MOE-3]
        gate, up = F.linear(x, self.experts.gate_up_proj[e]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.experts.down_proj[e])

    def largest(self, values):
        """The k largest of each row, equal values by lower id first [MOE-1]: ids [… k]. topk promises no order."""
        return torch.sort(values, dim=-1, descending=True, stable=True).indices[..., :self.c.experts_used]

    def coreset(self, probs, top_p):
        """The experts that a block may use [… E], from its rows' probs [… n, E]: [COR-2], [COR-3]."""
        ids = self.largest(probs)
        votes = torch.zeros_like(probs).scatter(-1, ids, probs.gather(-1, ids))
        totals = votes.sum(-2)
        shares = totals / totals.sum(-1, keepdim=True).clamp(min=1e-9)
        order = torch.sort(totals, dim=-1, descending=True, stable=True).indices
        ordered = shares.gather(-1, order)
        keep = ordered.cumsum(-1) - ordered < top_p                                                 # the mass before it
        keep[..., 0] = True
        return torch.zeros_like(keep).scatter(-1, order, keep)

    def plain(self, x, top_p, causal, tap):
        """x [T, D]; top_p: the coreset's bound, None when off."""
        c = self.c
        probs = self.gate(x).softmax(-1)
        tap('moe.probs', probs)
        kept = torch.ones(c.experts, dtype=torch.bool)
        if not causal:                                                                              # [COR-1]
            if top_p is not None:
                kept = self.coreset(probs, top_p)
            tap('moe.coreset', kept)
        ids = self.largest(probs.masked_fill(~kept, -1))[:, :int(kept.sum())]                       # [COR-4]
        weights = probs.gather(-1, ids)
        weights = weights / weights.sum(-1, keepdim=True)                                           # [MOE-2]
        tap('moe.ids', ids), tap('moe.weights', weights)
        routed = torch.zeros_like(x)
        for e in range(c.experts):                                                                  # ascending id
            row, place = (ids == e).nonzero(as_tuple=True)
            if len(row):
                routed[row] += weights[row, place, None] * self.expert(e, x[row])
        tap('moe.routed', routed)
        shared, gate = self.shared_expert(x), self.shared_expert_gate(x).sigmoid()                  # [MOE-4]
        tap('moe.shared', shared), tap('moe.shared_gate', gate)
        out = routed + gate * shared
        tap('moe', out)
        return out


class Layer(nn.Module):
    def __init__(self, c, full_attention):
        super().__init__()
        self.full_attention = full_attention
        self.input_layernorm = Norm(c.hidden_size, c.epsilon)
        self.post_attention_layernorm = Norm(c.hidden_size, c.epsilon)
        if full_attention:
            self.self_attn = Attention(c)
        else:
            self.linear_attn = DeltaNet(c)
        self.mlp = MoE(c)

    @property
    def mixer(self):
        return self.self_attn if self.full_attention else self.linear_attn

    def plain(self, h, state, position, causal, top_p, tap):
        """[LAY-2]."""
        x = self.input_layernorm(h)
        tap('attn_norm', x)
        mixed, state = self.mixer.plain(x, state, position, causal, tap)
        tap('mixer', mixed)
        h = h + mixed
        tap('mixer_residual', h)
        x = self.post_attention_layernorm(h)
        tap('ffn_norm', x)
        h = h + self.mlp.plain(x, top_p, causal, tap)
        tap('out', h)
        return h, state


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, full) for full in c.full_attention)
        self.norm = Norm(c.hidden_size, c.epsilon)


class Clover(nn.Module):
    """commit and preview are the engine that decode.py asks."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        if not config.tied:
            self.lm_head = linear(config.hidden_size, config.vocab_size)

    def head(self, h):
        weight = self.model.embed_tokens.weight if self.config.tied else self.lm_head.weight        # [CFG-15]
        return F.linear(h, weight)

    def empty_state(self):
        c, kind = self.config, self.model.norm.weight.dtype
        heads = torch.zeros(0, c.kv_heads, c.head_width, dtype=kind)
        ring = torch.zeros(c.taps - 1, c.conv_channels, dtype=kind)
        S = torch.zeros(c.value_heads, c.key_width, c.value_width, dtype=kind)
        return State(0, [LayerState(keys=heads, values=heads) if full else LayerState(ring=ring, S=S) for full in c.full_attention])

    @torch.no_grad()
    def step(self, ids, state, causal, top_p=None, probes=None):
        """Logits [T, V] of ids after `state`, and the state after them. `probes`, a dict, is filled with [PRB-2]'s values."""
        def tap_at(where):
            return (lambda name, value: probes.__setitem__(where + name, value)) if probes is not None else lambda name, value: None
        tap = tap_at('')
        ids = torch.as_tensor(ids, dtype=torch.long)
        tap('ids', ids)
        h = self.model.embed_tokens.weight[ids]                                                     # [LAY-1]
        tap('embed', h)
        states = []
        for number, (layer, layer_state) in enumerate(zip(self.model.layers, state.layers)):
            h, layer_state = layer.plain(h, layer_state, state.position, causal, top_p, tap_at(f'L{number:02d}.'))
            states.append(layer_state)
        h = self.model.norm(h)
        tap('final_norm', h)
        logits = self.head(h)                                                                       # [LAY-3]
        tap('logits', logits)
        return logits, State(state.position + len(ids), states)

    def commit(self, ids, state, probes=None):
        return self.step(ids, state, causal=True, probes=probes)

    def preview(self, ids, state, top_p=None, probes=None):
        """[PRV-1]: the state is read, and what the step would leave is dropped."""
        return self.step(ids, state, causal=False, top_p=top_p, probes=probes)[0]
