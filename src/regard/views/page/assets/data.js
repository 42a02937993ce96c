// what the file holds: the JSON of names and shapes, the packed numbers, and rows made from them
const R = {};
(() => {
  R.data = JSON.parse(document.getElementById("regard-data").textContent);
  const entries = new Map(R.data.entries.map((entry) => [entry.id, entry]));
  R.entry = (id) => entries.get(id);
  R.detailed = (id) => "map" in R.entry(id).blobs;
  // JSON knows no NaN: a mean that is null was none
  R.broken = (id) => Object.values(R.entry(id).stats).some((mean) => mean === null);

  // a classifier's pooling: one learned query, which is no token of any text
  R.pools = ({ kind, n, queries }) => kind === "cross" && n === 1 && /^label( B)?$/.test(R.data.sides[queries].name);

  // ---- packed numbers ----
  const stores = new Map();
  const arrays = new Map();
  const sizes = { u8: 1, u16: 2, f16: 2, i32: 4, f32: 4 };

  function bytesOf(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
    return bytes;
  }

  async function inflate(store) {
    const element = document.getElementById("regard-blob-" + store);
    const bytes = bytesOf(element.textContent.trim());
    // the text is not needed twice: let the page give the memory back
    element.remove();
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).arrayBuffer();
  }

  let halves = null;
  function halfTable() {
    const table = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) {
      const exponent = (bits >> 10) & 31, fraction = bits & 1023;
      let value = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
      if (exponent === 31) value = fraction ? NaN : Infinity;
      table[bits] = bits & 32768 ? -value : value;
    }
    return table;
  }

  function widen(stored, scale, power) {
    const numbers = new Float32Array(stored.length);
    for (let at = 0; at < stored.length; at++) numbers[at] = stored[at] * scale;
    if (power === 2) for (let at = 0; at < numbers.length; at++) numbers[at] *= numbers[at];
    else if (power !== 1) for (let at = 0; at < numbers.length; at++) numbers[at] = numbers[at] ** power;
    return numbers;
  }

  async function unpack(index) {
    const { dtype, shape, store, scale, power = 1, offset = 0 } = R.data.blobs[index];
    if (!stores.has(store)) stores.set(store, inflate(store));
    const buffer = await stores.get(store);
    const count = shape.reduce((product, size) => product * size, 1);
    // a store may hold several arrays back to back, so an odd start is copied
    const fits = offset % sizes[dtype] === 0;
    const source = fits ? buffer : buffer.slice(offset);
    const start = fits ? offset : 0;
    if (dtype === "i32") return new Int32Array(source, start, count);
    if (dtype === "f32") return new Float32Array(source, start, count);
    if (dtype === "u8") return widen(new Uint8Array(source, start, count), scale ?? 1, power);
    const words = new Uint16Array(source, start, count);
    if (dtype === "u16") return widen(words, scale ?? 1, power);
    halves = halves || halfTable();
    const numbers = new Float32Array(count);
    for (let at = 0; at < count; at++) numbers[at] = halves[words[at]];
    return numbers;
  }

  R.blob = (index) => {
    if (!arrays.has(index)) arrays.set(index, unpack(index));
    return arrays.get(index);
  };
  // bytes as they are stored, and the number that each of the 256 stands for
  R.bytes = async (index) => {
    const { shape, store, scale = 1, power = 1, offset = 0 } = R.data.blobs[index];
    if (!stores.has(store)) stores.set(store, inflate(store));
    const stored = new Uint8Array(await stores.get(store), offset, shape[0] * shape[1]);
    return { stored, shape, numbers: Float32Array.from({ length: 256 }, (_, byte) => (byte * scale) ** power) };
  };
  R.shape = (index) => R.data.blobs[index].shape;

  // ---- rows ----
  const full = (entry) => entry.width && entry.width[0] === 1 && entry.width[1] === 1 && "map" in entry.blobs;
  R.rowKind = (id) => {
    const entry = R.entry(id);
    if (entry.exact || full(entry)) return "exact";
    return "top_keys" in entry.blobs ? "top" : "none";
  };
  // from which the exact weight of any pair follows: exp(query . key - stat) inside the row's span
  const sources = new Map();
  R.source = (id) => {
    if (sources.has(id)) return sources.get(id);
    const entry = R.entry(id);
    const names = full(entry) ? ["map", "spans"] : ["query", "key", "stat", "spans"];
    const load = Promise.all(names.map((name) => (name in entry.blobs ? R.blob(entry.blobs[name]) : null)));
    const made = load.then((loaded) => {
      if (full(entry)) return { map: loaded[0], spans: loaded[1], m: entry.m };
      const [query, key, stat, spans] = loaded;
      return { query, key, stat, spans, m: entry.m, width: query.length / entry.n };
    });
    sources.set(id, made);
    return made;
  };
  R.spans = async (id) => {
    const { spans } = R.entry(id).blobs;
    return spans === undefined ? null : R.blob(spans);
  };

  // the weights of query i on keys from..to, written to out from its start
  R.weigh = (source, i, from, to, out) => {
    if (source.map) {
      out.set(source.map.subarray(i * source.m + from, i * source.m + to));
      return out;
    }
    const { query, key, stat, spans, width } = source;
    const start = spans ? Math.max(from, spans[2 * i]) : from;
    const stop = spans ? Math.min(to, spans[2 * i + 1]) : to;
    out.fill(0, 0, to - from);
    const base = i * width, norm = stat[i];
    for (let j = start; j < stop; j++) {
      const at = j * width;
      let sum = -norm;
      for (let c = 0; c < width; c++) sum += query[base + c] * key[at + c];
      // rounded keys could bring a weight a little above one; what is no number stays none
      out[j - from] = sum >= 0 ? 1 : Math.exp(sum);
    }
    return out;
  };

  const recent = new Map();
  function remember(name, promise) {
    recent.set(name, promise);
    if (recent.size > 64) recent.delete(recent.keys().next().value);
    return promise;
  }
  // a row of a softmax adds to one; in half precision it does so but for a thousandth
  function settle(row, { terms = "" }) {
    if (!terms.includes("Softmax") || /sink/i.test(terms)) return row;
    let sum = 0;
    for (const weight of row) sum += weight;
    // more than rounding is not to be hidden
    if (Math.abs(sum - 1) < 0.01) for (let j = 0; j < row.length; j++) row[j] /= sum;
    return row;
  }
  async function makeRow(id, i) {
    const entry = R.entry(id);
    const kind = R.rowKind(id);
    if (kind === "none") return null;
    const row = new Float32Array(entry.m);
    if (kind === "exact") return settle(R.weigh(await R.source(id), i, 0, entry.m, row), entry);
    const { top_keys: keysAt, top_weights: weightsAt } = entry.blobs;
    const [keys, weights] = await Promise.all([R.blob(keysAt), R.blob(weightsAt)]);
    const count = R.shape(keysAt)[1];
    for (let at = i * count; at < (i + 1) * count; at++) if (keys[at] >= 0) row[keys[at]] = weights[at];
    return row;
  }
  R.row = (id, i) => {
    const name = id + ":" + i;
    return recent.get(name) || remember(name, makeRow(id, i));
  };

  // sinks: key 0 and special tokens, which collect weight that means little
  const sinkSets = new Map();
  R.sinks = (side) => {
    if (!sinkSets.has(side)) {
      const special = R.data.sides[side].special || [];
      sinkSets.set(side, new Set([0, ...special.flatMap((is, k) => (is ? [k] : []))]));
    }
    return sinkSets.get(side);
  };
  R.shown = async (id, i) => {
    const row = await R.row(id, i);
    if (!row || !R.state.sinks) return { row, hidden: 0 };
    const kept = row.slice();
    let hidden = 0, rest = 0;
    for (const j of R.sinks(R.entry(id).keys)) {
      hidden += kept[j] || 0;
      kept[j] = 0;
    }
    for (const weight of kept) rest += weight;
    if (rest > 0) for (let j = 0; j < kept.length; j++) kept[j] /= rest;
    return { row: kept, hidden };
  };
  R.top = (row, count) => {
    const best = [];
    for (let j = 0; j < row.length; j++) {
      const weight = row[j];
      if (!weight || (best.length === count && Math.abs(weight) <= Math.abs(best[count - 1][1]))) continue;
      let at = best.length;
      while (at > 0 && Math.abs(best[at - 1][1]) < Math.abs(weight)) at--;
      best.splice(at, 0, [j, weight]);
      if (best.length > count) best.pop();
    }
    return best;
  };
  R.topOf = async (id, i, count) => {
    const { row } = await R.shown(id, i);
    return row ? R.top(row, count) : [];
  };

  // ---- labels ----
  const marks = { " ": "·", "\n": "↵", "\t": "→", "\r": "␍", "\u00a0": "⍽", "\u3000": "□" };
  // an invisible sign that joins or changes what stands beside it is part of the writing; alone it would be lost
  const seen = (sign) => /[^\s\p{Cc}\p{Cf}]/u.test(sign ?? "");
  const inside = (sign, at, text) =>
    /[\u200c\u200d]/u.test(sign) ? seen(text[at - 1]) && seen(text[at + 1])
      : /[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u.test(sign) && seen(text[at - 1]);
  const hidden =
    /[\u0000-\u0020\u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\u3000\ufe00-\ufe0f\ufeff\u{e0100}-\u{e01ef}]/gu;
  R.visible = (text) =>
    text.replace(hidden, (sign, at) => {
      if (sign in marks) return marks[sign];
      if (inside(sign, at, text)) return sign;
      return "⟨" + sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩";
    });
  // a space at the edge of a token is worth a mark only where words are in pieces: whole words begin anyway
  const cut = new Map();
  R.inPieces = (side) => {
    if (!cut.has(side)) {
      const { labels, special = [] } = R.data.sides[side];
      const joins = (k) => !special[k] && !special[k - 1] && /[\p{L}\p{N}]$/u.test(labels[k - 1]) && /^[\p{L}\p{M}\p{N}]/u.test(labels[k]);
      cut.set(side, labels.some((_, k) => k > 0 && joins(k)));
    }
    return cut.get(side);
  };
  const trimmed = (text) => text.replace(/^ (?=\S)/u, "").replace(/(\S) $/u, "$1");
  const label = (side, k, trim) => {
    let text = R.data.sides[side].labels[k];
    if (text === undefined) return "";
    if (!R.inPieces(side)) text = trimmed(text);
    // bytes of a character that was never finished have no text of their own
    const part = (text === "" || text === "∅") && (R.data.sides[side].marks || []).includes(k);
    return part ? "⟨…⟩" : text === "" ? "∅" : R.visible((trim && text.trim()) || text);
  };
  R.label = (side, k) => label(side, k, false);
  // in a sentence, without the space around it
  R.bare = (side, k) => label(side, k, true);
})();
