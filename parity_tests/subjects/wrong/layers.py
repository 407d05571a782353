"""Wrong on purpose, as classes like torch.nn.MultiheadAttention's."""

from __future__ import annotations

import numpy as np

EXPECTED = {
    "NoBias": "qv-bias-dropped",
    "LateQueryBias": "q-bias-unscaled",
    "PaddingIgnored": "mask-ignored",
    "PaddingAsBool": "bool-mask-added",
    "FloatPaddingIgnored": "float-kpm-ignored",
    "FirstSampleMask": "mask-first-sample-only",
    "TiledMask": "mask3d-tile-order",
    "FirstHeadMask": "mask-first-head-only",
    "BatchHead": "merge-batch-head-swap",
    "SummedWeights": "weights-sum",
    "ValueFromKey": "value-from-key",
    "NoOutput": "out-proj-skipped",
    "OutputTransposed": "out-proj-transposed",
    "ZeroedPadding": "kpm-zeroes-queries",
    "LastMaskWins": "masks-last-wins",
    "FloatMaskAsBool": "float-mask-as-bool",
    "WidthFirst": "merge-d-major",
    "ProjectedBiasKV": "biaskv-before-projection",
    "RawZero": "zeroattn-raw-space",
    "HiddenExtra": "zeroattn-mask-pad",
}


class Base:
    """A layer that is right; subclasses change a method."""

    def __init__(self, embed_dim, num_heads, bias=True, add_bias_kv=False, add_zero_attn=False,
                 batch_first=True):  # fmt: skip
        self.E, self.H, self.zero = embed_dim, num_heads, add_zero_attn
        self.first = batch_first
        shapes = {"in_proj_weight": (3 * embed_dim, embed_dim)}
        shapes |= {"out_proj.weight": (embed_dim, embed_dim)}
        if bias:
            shapes |= {"in_proj_bias": (3 * embed_dim,), "out_proj.bias": (embed_dim,)}
        if add_bias_kv:
            shapes |= {"bias_k": (1, 1, embed_dim), "bias_v": (1, 1, embed_dim)}
        self.state = {name: np.zeros(shape) for name, shape in shapes.items()}

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = {name: np.array(array) for name, array in state.items()}

    def W(self, i):
        return self.state["in_proj_weight"][i * self.E : (i + 1) * self.E]

    def b(self, i):
        bias = self.state.get("in_proj_bias")
        return 0 if bias is None else bias[i * self.E : (i + 1) * self.E]

    def lin(self, x, i):
        return x @ self.W(i).T + self.b(i)

    def qkv(self, q, k, v):
        return self.lin(q, 0) * self.factor(q), self.lin(k, 1), self.lin(v, 2)

    def factor(self, x):
        return x.dtype.type((self.E // self.H) ** -0.5)

    def extend(self, k, v):
        n = len(k)
        if "bias_k" in self.state:
            row = lambda name: np.broadcast_to(self.extra(name), (n, 1, self.E))
            k = np.concatenate([k, row("bias_k")], 1)
            v = np.concatenate([v, row("bias_v")], 1)
        if self.zero:
            k = np.concatenate([k, self.zeros(k, 1)], 1)
            v = np.concatenate([v, self.zeros(v, 2)], 1)
        return k, v

    def extra(self, name):
        return self.state[name]

    def zeros(self, x, i):
        return np.zeros((len(x), 1, self.E), dtype=x.dtype)

    def to_heads(self, x):
        return np.stack(np.split(x, self.H, axis=2), axis=1)

    def masks(self, kpm, mask, n, dtype):
        """Return both masks as a float (N, H, L, S) to add, or 0."""
        total = 0
        if mask is not None:
            total = total + self.attn(mask, n, dtype)
        if kpm is not None:
            total = total + self.padding(kpm, dtype)
        return total

    def attn(self, mask, n, dtype):
        added = self.as_float(mask, dtype)
        return added if mask.ndim == 2 else added.reshape(n, self.H, *mask.shape[1:])

    def padding(self, kpm, dtype):
        return self.as_float(kpm, dtype)[:, None, None]

    def as_float(self, mask, dtype):
        if mask.dtype == bool:
            out = np.zeros(mask.shape, dtype=dtype)
            out[mask] = -np.inf
            return out
        return mask

    def grown(self, added, columns):
        if np.ndim(added) == 0:
            return added
        missing = columns - added.shape[-1]
        edge = np.full((*added.shape[:-1], missing), self.edge(), dtype=added.dtype)
        return np.concatenate([added, edge], -1)

    def edge(self):
        return 0

    def joined(self, heads):
        return np.concatenate(list(np.moveaxis(heads, 1, 0)), axis=2)

    def out(self, x):
        y = x
        if "out_proj.weight" in self.state:
            y = y @ self.state["out_proj.weight"].T
        return y + self.state.get("out_proj.bias", 0)

    def mean(self, P):
        return P.sum(1) / x.shape[1] if (x := P).size else P.mean(1)

    def __call__(self, query, key, value, key_padding_mask=None, need_weights=True,
                 attn_mask=None, average_attn_weights=True):  # fmt: skip
        single = query.ndim == 2
        if single:
            query, key, value = (x[None] for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.first:
            query, key, value = (x.swapaxes(0, 1) for x in (query, key, value))
        q, k, v = self.qkv(query, key, value)
        k, v = self.extend(k, v)
        q, k, v = (self.to_heads(x) for x in (q, k, v))
        added = self.masks(key_padding_mask, attn_mask, len(q), q.dtype)
        z = q @ k.transpose(0, 1, 3, 2) + self.grown(added, k.shape[2])
        with np.errstate(invalid="ignore"):
            P = np.exp(z - z.max(-1, keepdims=True, initial=-np.inf))
            P /= P.sum(-1, keepdims=True)
        y = self.finish(self.joined(P @ v), key_padding_mask, query is key or single)
        y = self.out(y).astype(query.dtype)
        weights = (self.mean(P) if average_attn_weights else P) if need_weights else None
        weights = None if weights is None else weights.astype(query.dtype)
        if single:
            return y[0], None if weights is None else weights[0]
        return (y if self.first else y.swapaxes(0, 1)), weights

    def finish(self, y, kpm, is_self):
        return y


class NoBias(Base):
    def b(self, i):
        return 0


class LateQueryBias(Base):
    def qkv(self, q, k, v):
        return q @ self.W(0).T * self.factor(q) + self.b(0), self.lin(k, 1), self.lin(v, 2)


class PaddingIgnored(Base):
    def padding(self, kpm, dtype):
        return np.zeros((len(kpm), 1, 1, kpm.shape[1]), dtype=dtype)


class PaddingAsBool(Base):
    def as_float(self, mask, dtype):
        return mask.astype(dtype)


class FloatPaddingIgnored(Base):
    def padding(self, kpm, dtype):
        own = super().padding(kpm, dtype)
        return own if kpm.dtype == bool else np.zeros_like(own)


class FirstSampleMask(Base):
    def padding(self, kpm, dtype):
        return super().padding(kpm, dtype)[:1]

    def attn(self, mask, n, dtype):
        own = super().attn(mask, n, dtype)
        return own[0] if own.ndim == 4 else own


class TiledMask(Base):
    def attn(self, mask, n, dtype):
        if mask.ndim == 2:
            return super().attn(mask, n, dtype)
        blocks = self.as_float(mask, dtype)
        return np.stack([blocks[s :: n] for s in range(n)])


class FirstHeadMask(Base):
    def attn(self, mask, n, dtype):
        if mask.ndim == 2:
            return super().attn(mask, n, dtype)
        return self.as_float(mask, dtype)[:: self.H][:, None]


class BatchHead(Base):
    def joined(self, heads):
        n, h, length, d = heads.shape
        flat = heads.reshape(n * h, length, d)
        return np.concatenate([flat[i * n : (i + 1) * n] for i in range(h)], axis=2)


class SummedWeights(Base):
    def mean(self, P):
        return np.add.reduce(P, axis=1)


class ValueFromKey(Base):
    def qkv(self, q, k, v):
        return super().qkv(q, k, k)


class NoOutput(Base):
    def out(self, x):
        return x


class OutputTransposed(Base):
    def out(self, x):
        y = x @ self.state["out_proj.weight"] if "out_proj.weight" in self.state else x
        return y + self.state.get("out_proj.bias", 0)


class ZeroedPadding(Base):
    def finish(self, y, kpm, is_self):
        if kpm is None or not is_self or kpm.shape[1] != y.shape[1]:
            return y
        hidden = kpm if kpm.dtype == bool else np.isneginf(kpm)
        return y * ~hidden[..., None]


class LastMaskWins(Base):
    def masks(self, kpm, mask, n, dtype):
        return super().masks(kpm if mask is None else None, mask, n, dtype)


class FloatMaskAsBool(Base):
    def as_float(self, mask, dtype):
        return super().as_float(mask.astype(bool), dtype)


class WidthFirst(Base):
    def joined(self, heads):
        return np.stack(list(np.moveaxis(heads, 1, 0)), axis=-1).reshape(*heads.shape[::2][:1], heads.shape[2], -1)


class ProjectedBiasKV(Base):
    def extra(self, name):
        return self.lin(self.state[name], 1 if name == "bias_k" else 2)


class RawZero(Base):
    def zeros(self, x, i):
        return super().zeros(x, i) + self.b(i)


class HiddenExtra(Base):
    def edge(self):
        return -np.inf
