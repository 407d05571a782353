// Attention on projected Q, K, V in JavaScript, and what mha-parity needs to ask it.
//
//   mha-parity check --exec "node attention.mjs"
//   mha-parity check --exec "node attention.mjs wrong"    scale 1/sqrt(d_model): the report names it
import { readSync, writeSync } from "node:fs";

const PROTOCOL = "mha-parity-exec/1";
const OFFER = {
  protocol: PROTOCOL, form: "qkv", dtype: "float64,float32", inputs: "self,cross",
  attn: "none,bool2d,causal", padding: "none,bool", weights: "none,per_head", scale: "default,given",
};
const KINDS = { F64: Float64Array, F32: Float32Array, BOOL: Uint8Array };

// query (N, L, H D), key and value (N, S, H D); attnMask (L, S) and paddingMask (N, S), 1 hides.
// Returns the output (N, L, H D) and the weights (N, H, L, S).
function attention({ query, key, value, attnMask, paddingMask }, { heads, causal, scale }) {
  const [N, L, E] = query.shape, S = key.shape[1], D = E / heads;
  const output = new Float64Array(N * L * E), weights = new Float64Array(N * heads * L * S);
  for (let n = 0; n < N; n++)
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < L; i++) {
        const p = weights.subarray(((n * heads + h) * L + i) * S).subarray(0, S);
        const q = (n * L + i) * E + h * D;
        for (let j = 0; j < S; j++) {
          const hidden = (causal && j > i) || attnMask?.data[i * S + j] || paddingMask?.data[n * S + j];
          const k = (n * S + j) * E + h * D;
          for (let d = 0; d < D; d++) p[j] += query.data[q + d] * key.data[k + d];
          p[j] = hidden ? -Infinity : p[j] * scale;
        }
        const most = p.reduce((a, b) => Math.max(a, b), -Infinity);
        const sum = p.reduce((total, score, j) => total + (p[j] = Math.exp(score - most)), 0);
        for (let j = 0; j < S; j++) {
          p[j] /= sum;
          const v = (n * S + j) * E + h * D;
          for (let d = 0; d < D; d++) output[q + d] += p[j] * value.data[v + d];
        }
      }
  return { output: [output, [N, L, E]], weights: [weights, [N, heads, L, S]] };
}

function answer(arrays, options) {
  const { query, key, value, attn_mask: attnMask, key_padding_mask: paddingMask } = arrays;
  if (![query, key, value].every((array) => ["F64", "F32"].includes(array.dtype)))
    throw new Error("query, key and value should be F64 or F32");
  if (key.shape[1] !== value.shape[1])
    throw new Error(`got ${key.shape[1]} keys and ${value.shape[1]} values, but should be equal`);
  const scale = process.argv[2] === "wrong" ? 1 / Math.sqrt(query.shape[2]) : Number(options.scale);
  const heads = Number(options.num_heads), causal = options.is_causal === "yes";
  const found = attention({ query, key, value, attnMask, paddingMask }, { heads, causal, scale });
  if (options.weights === "none") delete found.weights;
  const header = { __metadata__: { protocol: PROTOCOL } }, parts = [];
  let end = 0;
  for (const [name, [numbers, shape]] of Object.entries(found)) {
    const part = KINDS[query.dtype].from(numbers);
    header[name] = { dtype: query.dtype, shape, data_offsets: [end, (end += part.byteLength)] };
    parts.push(Buffer.from(part.buffer));
  }
  return [header, parts];
}

function read(count) {
  const bytes = Buffer.alloc(count);
  for (let have = 0; have < count; ) {
    const more = readSync(0, bytes, have, count - have);
    if (more === 0) process.exit(0);
    have += more;
  }
  return bytes;
}

function send(header, parts = []) {
  const text = Buffer.from(JSON.stringify(header)), lengths = Buffer.alloc(16);
  const size = 8 + text.length + parts.reduce((total, part) => total + part.length, 0);
  lengths.writeBigUInt64LE(BigInt(size), 0);
  lengths.writeBigUInt64LE(BigInt(text.length), 8);
  const whole = Buffer.concat([lengths, text, ...parts]);
  for (let done = 0; done < whole.length; ) done += writeSync(1, whole, done);
}

for (;;) {
  const block = read(Number(read(8).readBigUInt64LE()));
  const start = 8 + Number(block.readBigUInt64LE());
  const { __metadata__: options, ...header } = JSON.parse(block.subarray(8, start));
  if (options.request === "offer") {
    send({ __metadata__: OFFER });
    continue;
  }
  try {
    const arrays = {};
    for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
      const bytes = Uint8Array.from(block.subarray(start + from, start + to)); // a copy, aligned
      arrays[name] = { dtype, shape, data: KINDS[dtype] && new KINDS[dtype](bytes.buffer) };
    }
    send(...answer(arrays, options));
  } catch (error) {
    send({ __metadata__: { protocol: PROTOCOL, error: error.message } });
  }
}
