// the parts of a map: the picture of a window of it, its axes, its strips, its cross hair
(() => {
  // ---- pictures of a window [top, bottom) x [left, right) ----
  // the keys that any query of a block may see; outside them a cell is masked, which is not the same as a small weight
  R.allowed = (spans, from, to) => {
    let start = Infinity, stop = 0;
    for (let i = from; i < to; i++) {
      if (spans[2 * i + 1] <= spans[2 * i]) continue;
      if (spans[2 * i] < start) start = spans[2 * i];
      if (spans[2 * i + 1] > stop) stop = spans[2 * i + 1];
    }
    return [start, stop];
  };
  R.maskCells = (cells, rows, cols, spans, edgesOfRow, edgesOfCol) => {
    for (let r = 0; r < rows; r++) {
      const [start, stop] = R.allowed(spans, edgesOfRow(r), edgesOfRow(r + 1));
      for (let c = 0; c < cols; c++) {
        if (edgesOfCol(c) >= stop || edgesOfCol(c + 1) <= start) cells[r * cols + c] = R.masked;
      }
    }
  };
  // work for R.slice: exact weights of the window, averaged into at most rows x cols bins
  R.tile = function* (source, [top, bottom, left, right], most, hidden) {
    const n = bottom - top, m = right - left;
    const rows = Math.min(n, most[0]), cols = Math.min(m, most[1]);
    const cells = new Float32Array(rows * cols);
    const counts = new Float32Array(cols);
    const binOf = Int32Array.from({ length: m }, (_, j) => Math.floor((j * cols) / m));
    for (const bin of binOf) counts[bin]++;
    const buffer = new Float32Array(m);
    const rowEdge = (r) => top + Math.ceil((r * n) / rows), colEdge = (c) => left + Math.ceil((c * m) / cols);
    for (let r = 0; r < rows; r++) {
      const from = rowEdge(r), to = rowEdge(r + 1), base = r * cols;
      for (let i = from; i < to; i++) {
        R.weigh(source, i, left, right, buffer);
        for (const j of hidden) if (j >= left && j < right) buffer[j - left] = 0;
        for (let j = 0; j < m; j++) cells[base + binOf[j]] += buffer[j];
        yield;
      }
      for (let c = 0; c < cols; c++) cells[base + c] /= counts[c] * (to - from);
    }
    if (source.spans) R.maskCells(cells, rows, cols, source.spans, rowEdge, colEdge);
    for (const j of hidden) {
      const c = j >= left && j < right && cols === m ? j - left : -1;
      if (c >= 0) for (let r = 0; r < rows; r++) cells[r * cols + c] = R.masked;
    }
    return { cells, rows, cols };
  };
  R.least = (cells) => {
    let least = 0;
    for (const value of cells) if (value < least && value !== R.masked) least = value;
    return least;
  };
  R.largest = (cells) => {
    let most = 0;
    for (const value of cells) if (value > most && value !== Infinity) most = value;
    return most;
  };

  // the coarse map with its masked cells clear
  let last = null;
  R.layer = async (id) => {
    if (last && last.id === id) return last;
    const entry = R.entry(id);
    const [map, spans] = await Promise.all([R.coarse(id), R.spans(id)]);
    const { cells, rows, cols, width } = map;
    const edge = (axis, total) => (at) => Math.min(at * width[axis], total);
    if (spans) R.maskCells(cells, rows, cols, spans, edge(0, entry.n), edge(1, entry.m));
    const [masked, broken] = [cells.includes(R.masked), cells.some(R.isVoid)];
    last = { ...map, id, least: R.least(cells), masked, broken, covers: [0, rows * width[0], 0, cols * width[1]] };
    return last;
  };
  // moving about repaints the same cells: their picture is made again only for other colours
  R.pictureOf = (layer, norm) => {
    const look = [norm.high, norm.low, norm.kind, document.documentElement.dataset.theme].join();
    if (layer.look !== look) [layer.look, layer.image] = [look, R.picture(layer.cells, layer.rows, layer.cols, norm, norm.kind)];
    return layer.image;
  };
  R.loadDots = async ({ blobs }) => {
    const [keys, weights] = await Promise.all([R.blob(blobs.top_keys), R.blob(blobs.top_weights)]);
    return { keys, weights, count: R.shape(blobs.top_keys)[1] };
  };
  R.mostIn = ({ cells, rows, cols, width }, dots, win) => {
    let most = 0;
    for (let r = Math.floor(win[0] / width[0]); r < Math.min(Math.ceil(win[1] / width[0]), rows); r++) {
      const from = r * cols + Math.floor(win[2] / width[1]), to = r * cols + Math.min(Math.ceil(win[3] / width[1]), cols);
      most = Math.max(most, R.largest(cells.subarray(from, to)));
    }
    if (!dots) return most;
    for (let at = win[0] * dots.count; at < win[1] * dots.count; at++) {
      if (dots.weights[at] > most && dots.keys[at] >= win[2] && dots.keys[at] < win[3]) most = dots.weights[at];
    }
    return most;
  };
  R.dots = (context, { keys, weights, count }, win, box, norm) => {
    const wide = box.width / (win[3] - win[2]), high = box.height / (win[1] - win[0]);
    for (let at = win[0] * count; at < win[1] * count; at++) {
      const j = keys[at];
      if (j < win[2] || j >= win[3]) continue;
      const i = Math.floor(at / count);
      context.fillStyle = norm.kind === "diverge" ? R.diverge(2 * norm.of(weights[at]) - 1) : R.colour(norm.of(weights[at]));
      context.fillRect(box.x + (j - win[2]) * wide, box.y + (i - win[0]) * high, Math.max(wide, 2), Math.max(high, 2));
    }
  };

  // ---- axes ----
  const tickSteps = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 2500, 5000, 10000, 20000, 50000];
  function ticks(from, to, length, least) {
    const count = to - from;
    if (length / count >= 11) return { every: true, list: Array.from({ length: count }, (_, at) => from + at) };
    const stride = tickSteps.find((step) => (step * length) / count >= least) || 100000;
    const list = [];
    for (let at = Math.ceil(from / stride) * stride; at < to; at += stride) list.push(at);
    return { every: false, list };
  }
  // room for the labels of a side: the same at every zoom, or the map would move under the hand
  const gutters = new Map();
  R.gutter = (side, count, most) => {
    const name = [side, count, most].join();
    if (!gutters.has(name)) {
      const context = document.createElement("canvas").getContext("2d");
      context.font = R.font(13);
      const stride = Math.max(1, Math.floor(count / 200));
      // few tokens have a label each, without its number
      const lead = count > 32 ? count + " " : "";
      let widest = 0;
      for (let k = 0; k < count; k += stride) {
        widest = Math.max(widest, context.measureText(lead + R.label(side, k).slice(0, 64)).width);
      }
      gutters.set(name, Math.round(Math.min(Math.max(widest + 24, 72), most)));
    }
    return gutters.get(name);
  };
  // text along the left: each token where there is room, else every so many with their number
  R.rowLabels = (context, side, [from, to], box, room) => {
    const size = box.height / (to - from);
    const { every, list } = ticks(from, to, box.height, 32);
    context.font = R.font(Math.min(13, Math.max(10, size - 1)));
    context.fillStyle = R.css("--quiet");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const i of list) {
      const text = every ? R.label(side, i) : i + " " + R.label(side, i);
      context.fillText(R.clip(context, text, room - 10), box.x - 8, box.y + (i - from + 0.5) * size);
    }
  };
  R.colLabels = (context, side, [from, to], box, room) => {
    const size = box.width / (to - from);
    const { every, list } = ticks(from, to, box.width, 40);
    context.font = R.font(Math.min(13, Math.max(10, size - 1)));
    context.fillStyle = R.css("--quiet");
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const j of list) {
      const label = R.label(side, j), lead = every ? "" : j + " ";
      const place = { x: box.x + (j - from + 0.5) * size, y: box.y - 8, room: room - 10 };
      if (!upright.test(label)) turn(context, lead + label, place);
      else {
        turn(context, lead, place);
        const taken = lead ? context.measureText(lead).width : 0;
        stack(context, label, { ...place, y: place.y - taken, room: place.room - taken });
      }
    }
  };
  function turn(context, text, { x, y, room }) {
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(R.clip(context, text, room), 0, 0);
    context.restore();
  }
  // signs of these scripts stand upright in a column, from top to bottom
  const upright = /^·?[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\u30fc\uff01-\uff60]+$/u;
  function stack(context, label, { x, y, room }) {
    const high = parseFloat(context.font) * 1.08;
    let signs = Array.from(label.replace(/^·/, ""));
    if (signs.length * high > room) signs = [...signs.slice(0, Math.max(1, Math.floor(room / high) - 1)), "︙"];
    context.textAlign = "center";
    signs.forEach((sign, at) => context.fillText(sign, x, y - (signs.length - at - 0.5) * high));
  }

  // ---- strips: one number for each row or column of the window, the largest of each pixel ----
  R.strip = (context, values, [from, to], box, { upright = true, colour = "--accent", most = 0 } = {}) => {
    const count = to - from;
    const length = Math.max(1, Math.floor(upright ? box.width : box.height));
    const depth = upright ? box.height : box.width;
    let top = most;
    if (!top) top = R.largest(values.subarray(from, to)) || 1;
    context.fillStyle = R.css("--sunk");
    context.fillRect(box.x, box.y, box.width, box.height);
    const plain = R.css(colour);
    const bars = Math.min(count, length);
    const thick = length / bars;
    for (let bar = 0; bar < bars; bar++) {
      let value = 0, empty = false;
      const stop = from + Math.ceil(((bar + 1) * count) / bars);
      for (let at = from + Math.floor((bar * count) / bars); at < stop; at++) {
        if (values[at] > value) value = values[at];
        if (R.isVoid(values[at])) empty = true;
      }
      context.fillStyle = empty ? R.crosses(context) : plain;
      if (empty) value = top;
      if (!value) continue;
      const high = Math.max(1, Math.min(value / top, 1) * depth);
      const wide = Math.max(thick > 4 ? thick - 1 : thick, 0.75);
      if (upright) context.fillRect(box.x + bar * thick, box.y + depth - high, wide, high);
      else context.fillRect(box.x, box.y + bar * thick, high, wide);
    }
    return top;
  };

  R.caption = (context, room, text, x, y, align) => {
    context.font = R.font(11);
    context.fillStyle = R.css("--quiet");
    context.textAlign = align;
    context.textBaseline = "middle";
    context.fillText(R.clip(context, text, room), x, y);
  };
  // a line of a list with a bar behind it; share from 0 to 1
  R.barItem = (label, number, share) => {
    const bar = R.el("span", { class: "bar-mark", "aria-hidden": "true" });
    bar.style.width = Math.min(100, Math.max(1, 100 * Math.abs(share))) + "%";
    return R.el("li", {}, bar, label, R.el("span", { class: "number" }, number));
  };

  // ---- cross hair ----
  R.cross = (context, box, [top, bottom, left, right], query, key) => {
    const high = box.height / (bottom - top), wide = box.width / (right - left);
    const y = box.y + (query - top) * high, x = box.x + (key - left) * wide;
    // a dark line inside a light one reads on every colour of the ramp
    for (const [colour, line] of [["rgba(0, 0, 0, 0.75)", 3], ["rgba(255, 255, 255, 0.95)", 1.2]]) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.beginPath();
      if (query >= top && query < bottom) {
        if (high >= 4) context.rect(box.x, y, box.width, high);
        else {
          context.moveTo(box.x, y + high / 2);
          context.lineTo(box.x + box.width, y + high / 2);
        }
      }
      if (key >= left && key < right) {
        if (wide >= 4) context.rect(x, box.y, wide, box.height);
        else {
          context.moveTo(x + wide / 2, box.y);
          context.lineTo(x + wide / 2, box.y + box.height);
        }
      }
      context.stroke();
    }
  };
  R.tag = (context, text, x, y, align, most = 240) => {
    context.font = R.font(12);
    text = R.clip(context, text, most - 12);
    const wide = context.measureText(text).width + 12;
    const left = align === "right" ? x - wide : align === "center" ? x - wide / 2 : x;
    context.fillStyle = R.css("--ink");
    context.fillRect(Math.max(left, 0), y - 10, wide, 20);
    context.fillStyle = R.css("--panel");
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, Math.max(left, 0) + 6, y + 1);
  };

  // ---- windows ----
  R.panned = ([top, bottom, left, right], down, along, n, m) => {
    const rows = Math.min(Math.max(Math.round(down * (bottom - top)), -top), n - bottom);
    const cols = Math.min(Math.max(Math.round(along * (right - left)), -left), m - right);
    return [top + rows, bottom + rows, left + cols, right + cols];
  };
  R.centred = (win, i, j, n, m) => {
    const fit = (size, at, total) => {
      const start = Math.round(Math.min(Math.max(at - size / 2, 0), total - size));
      return [start, start + size];
    };
    return [...fit(win[1] - win[0], i, n), ...fit(win[3] - win[2], j, m)];
  };
  // a window of the same shape around a place, inside n x m
  R.zoomed = ([top, bottom, left, right], factor, i, j, n, m) => {
    const fit = (from, to, at, total) => {
      const size = Math.max(Math.min(4, total), Math.min(total, Math.round((to - from) * factor)));
      const share = (at - from) / Math.max(to - from, 1);
      const start = Math.round(Math.min(Math.max(at - share * size, 0), total - size));
      return [start, start + size];
    };
    const next = [...fit(top, bottom, i, n), ...fit(left, right, j, m)];
    return next[1] - next[0] === n && next[3] - next[2] === m ? null : next;
  };
})();
