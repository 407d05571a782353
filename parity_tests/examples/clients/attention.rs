// Attention on projected Q, K, V in Rust, and what mha-parity needs to ask it. No crate.
//
//   rustc -O --edition 2021 attention.rs
//   mha-parity check --exec ./attention
//   mha-parity check --exec "./attention wrong"      scale 1/sqrt(d_model): the report names it
use std::io::{self, Read, Write};

const PROTOCOL: &str = "\"protocol\":\"mha-parity-exec/1\"";
const OFFER: &str = "\"form\":\"qkv\",\"dtype\":\"float64,float32\",\"inputs\":\"self,cross\",\
    \"attn\":\"none,bool2d,causal\",\"scale\":\"default,given\",\"kv_heads\":\"equal,fewer\"";

struct Heads { query: usize, key: usize }

// query (N, L, H D), key and value (N, S, G D), G heads shared by H; mask (L, S), true hides.
fn attention(q: &Array, k: &Array, v: &Array, mask: Option<&Array>, causal: bool, scale: f64,
             heads: &Heads) -> Vec<f64> {
    let (n, l, e) = (q.shape[0], q.shape[1], q.shape[2]);
    let (s, w) = (k.shape[1], k.shape[2]);
    let d = e / heads.query;
    let mut output = vec![0.0; n * l * e];
    for (row, out) in output.chunks_mut(d.max(1)).enumerate() {
        let (i, h) = (row / heads.query % l, row % heads.query);
        let sample = row / heads.query / l;
        let first = |j: usize| (sample * s + j) * w + h / (heads.query / heads.key) * d;
        let query = &q.data[row * d..(row + 1) * d];
        let hidden = |j: usize| causal && j > i || mask.is_some_and(|m| m.data[i * s + j] != 0.0);
        let scores: Vec<f64> = (0..s).map(|j| {
            let key = &k.data[first(j)..first(j) + d];
            let dot: f64 = query.iter().zip(key).map(|(a, b)| a * b).sum();
            if hidden(j) { f64::NEG_INFINITY } else { dot * scale }
        }).collect();
        let most = scores.iter().cloned().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        for (j, power) in powers.iter().enumerate() {
            for (x, value) in out.iter_mut().zip(&v.data[first(j)..first(j) + d]) {
                *x += power / sum * value;
            }
        }
    }
    output
}

struct Array { dtype: String, shape: Vec<usize>, data: Vec<f64> }

// The header has no spaces, and dtype, shape and data_offsets in this order: no JSON parser needed.
fn find(header: &str, data: &[u8], name: &str) -> Option<Array> {
    let (_, rest) = header.split_once(&format!("\"{name}\":{{\"dtype\":\""))?;
    let (dtype, rest) = rest.split_once("\",\"shape\":[")?;
    let (shape, rest) = rest.split_once("],\"data_offsets\":[")?;
    let numbers = |text: &str| text.split(',').filter_map(|n| n.parse().ok()).collect::<Vec<usize>>();
    let place = numbers(rest.split_once(']')?.0);
    let bytes = &data[place[0]..place[1]];
    let data = match dtype {
        "F64" => bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
        "F32" => bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect(),
        "BOOL" => bytes.iter().map(|b| f64::from(*b)).collect(),
        _ => return None,
    };
    Some(Array { dtype: dtype.to_string(), shape: numbers(shape), data })
}

fn option<'a>(header: &'a str, name: &str) -> &'a str {
    let found = header.split_once(&format!("\"{name}\":\""));
    found.and_then(|(_, rest)| rest.split_once('"')).map_or("", |(value, _)| value)
}

// Returns the header of the reply and its data, or why there is none.
fn answer(header: &str, data: &[u8], wrong: bool) -> Result<(String, Vec<u8>), String> {
    let array = |name| find(header, data, name).ok_or(format!("{name} should be F64 or F32"));
    let (q, k, v) = (array("query")?, array("key")?, array("value")?);
    let mask = find(header, data, "attn_mask");
    if k.shape[1] != v.shape[1] {
        return Err(format!("{} keys and {} values should be as many", k.shape[1], v.shape[1]));
    }
    let number = |name| option(header, name).parse::<usize>().map_err(|e| format!("{name}: {e}"));
    let heads = Heads { query: number("num_heads")?, key: number("num_kv_heads")? };
    let asked: f64 = option(header, "scale").parse().map_err(|e| format!("scale: {e}"))?;
    let scale = if wrong { 1.0 / (q.shape[2] as f64).sqrt() } else { asked };
    let causal = option(header, "is_causal") == "yes";
    let output = attention(&q, &k, &v, mask.as_ref(), causal, scale, &heads);
    let bytes: Vec<u8> = if q.dtype == "F64" {
        output.iter().flat_map(|x| x.to_le_bytes()).collect()
    } else {
        output.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect()
    };
    let reply = format!(
        "{{\"__metadata__\":{{{PROTOCOL}}},\"output\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[0,{}]}}}}",
        q.dtype, format!("{:?}", q.shape).replace(' ', ""), bytes.len());
    Ok((reply, bytes))
}

fn length(from: &[u8]) -> usize {
    u64::from_le_bytes(from[..8].try_into().unwrap()) as usize
}

fn main() -> io::Result<()> {
    let wrong = std::env::args().nth(1).as_deref() == Some("wrong");
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut size = [0; 8];
    while input.read_exact(&mut size).is_ok() {
        let mut block = vec![0; length(&size)];
        input.read_exact(&mut block)?;
        let (text, data) = block[8..].split_at(length(&block));
        let header = String::from_utf8_lossy(text);
        let (reply, bytes) = if option(&header, "request") == "offer" {
            (format!("{{\"__metadata__\":{{{PROTOCOL},{OFFER}}}}}"), vec![])
        } else {
            answer(&header, data, wrong).unwrap_or_else(|error| {
                (format!("{{\"__metadata__\":{{{PROTOCOL},\"error\":{error:?}}}}}"), vec![])
            })
        };
        output.write_all(&((8 + reply.len() + bytes.len()) as u64).to_le_bytes())?;
        output.write_all(&(reply.len() as u64).to_le_bytes())?;
        output.write_all(reply.as_bytes())?;
        output.write_all(&bytes)?;
        output.flush()?;
    }
    Ok(())
}
