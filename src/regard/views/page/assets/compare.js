// compare: two heads side by side with one norm, their difference, and which heads differ most
(() => {
  const { el, say, state } = R;
  let pickers, panels, note, linked, legends, list, ranking, body, refusal, scope, scale;
  let pair = null;
  let drawn = "";
  let job = null;
  let thumbs = null;

  // ---- two maps on one grid of cells ----
  // sums of overlaps, so that the mass of a map stays what it was
  function resample(map, rows, cols) {
    const cells = new Float32Array(rows * cols);
    const spread = (from, to) => Array.from({ length: from }, (_, at) => {
      const start = (at * to) / from, stop = ((at + 1) * to) / from;
      const parts = [];
      for (let bin = Math.floor(start); bin < Math.min(Math.ceil(stop), to); bin++) {
        parts.push([bin, Math.min(stop, bin + 1) - Math.max(start, bin)]);
      }
      return parts;
    });
    const down = spread(map.rows, rows), along = spread(map.cols, cols);
    // densities average, so each part counts by the area it covers
    for (let r = 0; r < map.rows; r++) {
      for (let c = 0; c < map.cols; c++) {
        const value = map.cells[r * map.cols + c];
        for (const [y, high] of down[r]) for (const [x, wide] of along[c]) cells[y * cols + x] += value * high * wide;
      }
    }
    return { ...map, cells, rows, cols };
  }
  async function load(a, b) {
    const loads = [R.coarse(a.id), R.coarse(b.id), R.spans(a.id), R.spans(b.id)];
    let [first, second, ...spans] = await Promise.all(loads);
    const sameSize = a.n === b.n && a.m === b.m, sameSides = sameSize && a.queries === b.queries && a.keys === b.keys;
    let how = sameSides ? "same" : sameSize ? "positions" : "relative";
    if (!sameSize) {
      // a density of weight per pair means less where there are more keys: compare shares of the even weight
      for (const [map, entry] of [[first, a], [second, b]]) map.cells = map.cells.map((value) => value * entry.m);
    }
    if (first.rows !== second.rows || first.cols !== second.cols) {
      const rows = Math.min(first.rows, second.rows), cols = Math.min(first.cols, second.cols);
      [first, second] = [resample(first, rows, cols), resample(second, rows, cols)];
      if (how === "same") how = "blocks";
    }
    const gap = Float32Array.from(first.cells, (value, at) => second.cells[at] - value);
    if (sameSize && how !== "blocks") hide([first, second], spans, gap, a);
    return { maps: [first.cells, second.cells, gap], rows: first.rows, cols: first.cols, how, a, b };
  }
  // masked cells are clear in each map, and in the difference where both are masked
  function hide(maps, spans, gap, { n, m }) {
    maps.forEach((map, at) => {
      const { cells, rows, cols, width } = map;
      if (spans[at]) R.maskCells(cells, rows, cols, spans[at], (r) => Math.min(r * width[0], n), (c) => Math.min(c * width[1], m));
    });
    const [first, second] = maps.map(({ cells }) => cells);
    for (let at = 0; at < gap.length; at++) if (first[at] === R.masked && second[at] === R.masked) gap[at] = R.masked;
  }

  // ---- paint ----
  const side = (width) => (width < 520 ? width : width < 900 ? (width - 16) / 2 : (width - 32) / 3);
  function paint() {
    const { maps, rows, cols } = pair;
    const most = Math.max(R.largest(maps[0]), R.largest(maps[1]));
    const shared = R.norm(most, state.log, 3);
    const signed = R.signedNorm(Math.max(R.largest(maps[2]), -R.least(maps[2])));
    const wide = Math.floor(Math.min(side(body.clientWidth) - 34, 520));
    const high = Math.floor(wide * Math.min(Math.max(rows / cols, 0.4), 1.6));
    panels.forEach(({ canvas, over }, at) => {
      const context = R.canvas(canvas, wide, high);
      R.canvas(over, wide, high);
      const [norm, kind] = at === 2 ? [signed, "diverge"] : [shared, "sequential"];
      R.hatch(context, 0, 0, wide, high);
      context.imageSmoothingEnabled = false;
      context.drawImage(R.picture(maps[at], rows, cols, norm, kind), 0, 0, wide, high);
      R.voids(context, maps[at], rows, cols, [0, 0, wide, high]);
      canvas.parentElement.style.height = high + "px";
    });
    R.legend(legends[0], shared, "sequential", Math.min(wide, 260));
    R.legend(legends[1], signed, "diverge", Math.min(wide, 260));
  }
  function cellNow() {
    const { a, rows, cols } = pair;
    const row = Math.min(Math.floor((state.query * rows) / a.n), rows - 1);
    const col = state.key < 0 ? -1 : Math.min(Math.floor((state.key * cols) / a.m), cols - 1);
    return [row, col];
  }
  function point() {
    const { maps, rows, cols, a, b, how } = pair;
    const [row, col] = cellNow();
    panels.forEach(({ over }) => {
      const [width, height] = [parseFloat(over.style.width), parseFloat(over.style.height)];
      const context = R.canvas(over, width, height);
      R.cross(context, { x: 0, y: 0, width, height }, [0, rows, 0, cols], row, col);
    });
    if (col < 0) {
      linked.textContent = R.t("compare.hint");
      return;
    }
    const print = (x) => (x === R.masked ? R.t("compare.masked") : R.number(x));
    const [first, second, gap] = maps.map((cells) => print(cells[row * cols + col]));
    const label = (entry, which, at, of, total) => R.quoted(entry[which], Math.floor(((at + 0.5) * total) / of));
    const values = { first, second, gap, row, col, query: label(a, "queries", row, rows, a.n), key: label(a, "keys", col, cols, a.m),
      query2: label(b, "queries", row, rows, b.n), key2: label(b, "keys", col, cols, b.m) };
    const exact = rows === a.n && cols === a.m && how === "same";
    linked.textContent = R.t(exact ? "compare.pair" : how === "same" || how === "blocks" ? "compare.block" : "compare.place", values);
  }
  function onMove(event) {
    if (!pair) return;
    const area = event.currentTarget.getBoundingClientRect();
    const part = (at, size, total) => Math.min(Math.max(Math.floor((at / size) * total), 0), total - 1);
    R.set({ query: part(event.clientY - area.top, area.height, pair.a.n), key: part(event.clientX - area.left, area.width, pair.a.m) });
  }
  function onKey(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in moves) || !pair || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [down, along] = moves[event.key];
    // one step is one cell, which may be many tokens
    const { a, rows, cols } = pair;
    const step = (at, by, total, count) => Math.min(Math.max(at + by * Math.max(1, Math.round(total / count)), 0), total - 1);
    R.set({ query: step(state.query, down, a.n, rows), key: step(Math.max(state.key, 0), along, a.m, cols) });
    R.announce(linked.textContent);
  }

  // ---- ranking by Jensen-Shannon divergence of the thumbnails, row by row, in bits ----
  const bins = 16;
  async function profiles() {
    const entries = R.data.entries.filter(({ id }) => !R.broken(id));
    const loaded = await Promise.all(entries.map(({ blobs }) => R.blob(blobs.thumb)));
    return entries.map((entry, at) => {
      const [rows, cols] = R.shape(entry.blobs.thumb);
      const count = Math.min(bins, rows), width = Math.min(bins, cols);
      const { cells } = resample({ cells: loaded[at], rows, cols }, count, width);
      const logs = new Float32Array(count);
      for (let r = 0; r < count; r++) {
        const row = cells.subarray(r * width, (r + 1) * width);
        const sum = row.reduce((total, value) => total + value, 0) || 1;
        for (let c = 0; c < width; c++) {
          row[c] /= sum;
          if (row[c] > 0) logs[r] += row[c] * Math.log2(row[c]);
        }
      }
      return { entry, cells, count, width, logs };
    });
  }
  function diverge(p, q) {
    let total = 0;
    for (let r = 0; r < p.count; r++) {
      let mixed = 0;
      for (let at = r * p.width; at < (r + 1) * p.width; at++) {
        const middle = 0.5 * (p.cells[at] + q.cells[at]);
        if (middle > 0) mixed += middle * Math.log2(middle);
      }
      total += 0.5 * (p.logs[r] + q.logs[r]) - mixed;
    }
    return Math.max(0, total / p.count);
  }
  const fits = (p, q) => p.count === q.count && p.width === q.width && p.entry.kind === q.entry.kind;
  // only the ends of the list are kept: half a million pairs would take longer to sort than to compare
  function* rank(all, own) {
    const alike = [], unlike = [];
    let count = 0;
    const insert = (list, item, size, sign) => {
      if (list.length === size && sign * item[0] >= sign * list[size - 1][0]) return;
      let at = list.length;
      while (at > 0 && sign * list[at - 1][0] > sign * item[0]) at--;
      list.splice(at, 0, item);
      if (list.length > size) list.pop();
    };
    for (let first = 0; first < all.length; first++) {
      if (own >= 0 && all[first].entry.id !== own) continue;
      for (let second = own >= 0 ? 0 : first + 1; second < all.length; second++) {
        if (first === second || !fits(all[first], all[second])) continue;
        const item = [diverge(all[first], all[second]), first, second];
        insert(alike, item, 24, 1);
        insert(unlike, item, 12, -1);
        count++;
      }
      yield;
    }
    return { count, rows: count > 24 ? [...alike.slice(0, 12), null, ...unlike.reverse()] : alike };
  }
  async function rankNow() {
    thumbs = thumbs || (await profiles());
    if (job) job.cancel();
    const mine = (job = R.slice(rank(thumbs, scope.value === "all" ? -1 : state.entry)));
    ranking.textContent = R.t("compare.ranking.busy");
    const found = await mine.promise;
    if (!found || mine !== job) return;
    const { count, rows } = found;
    ranking.textContent = count ? R.t("compare.ranking.note", { count: count.toLocaleString("en") }) : R.t("compare.ranking.none");
    const name = (at) => R.name(thumbs[at].entry);
    list.replaceChildren(...rows.map((row) => {
      if (!row) return el("li", { class: "quiet" }, R.t("compare.ranking.between", { count: (count - 24).toLocaleString("en") }));
      const [value, first, second] = row;
      const text = scope.value === "all" ? name(first) + " ↔ " + name(second) : name(second);
      const open = () => R.set({ entry: thumbs[first].entry.id, other: thumbs[second].entry.id });
      const button = el("button", { class: "plain bar-label", type: "button", dir: "auto", onclick: open }, text);
      return R.barItem(button, R.t("compare.bits", { value: value.toFixed(3) }), value);
    }));
  }

  // ---- show ----
  function fill() {
    const groups = new Map();
    for (const entry of R.data.entries) {
      const name = (R.data.models.length > 1 ? R.data.models[entry.model] + " · " : "") + entry.name;
      groups.set(name, [...(groups.get(name) || []), entry]);
    }
    const options = (chosen) => [...groups].map(([label, entries]) =>
      el("optgroup", { label }, entries.map((entry) => el("option", { value: entry.id, selected: entry.id === chosen }, R.name(entry)))));
    pickers[0].replaceChildren(...options(state.entry));
    pickers[1].replaceChildren(...options(state.other));
  }
  // the likeliest wish: the same head of the other model, else the next head
  function partner(entry) {
    const others = R.data.entries.filter((other) => other.id !== entry.id);
    const alike = others.filter(({ kind, n, m }) => kind === entry.kind && n === entry.n && m === entry.m);
    // texts of two runs are seldom of one length; the nearest layer where the other has fewer
    const off = ({ layer, head }) => 1000 * Math.abs(layer - entry.layer) + Math.abs(head - entry.head);
    const twins = others.filter(({ model, kind }) => model !== entry.model && kind === entry.kind);
    const twin = twins.reduce((best, other) => (best && off(best) <= off(other) ? best : other), null);
    return twin || R.siblings(entry).find(({ head }) => head === entry.head + 1) || alike[0] || others[0];
  }
  async function show(now, patch) {
    const a = R.entry(state.entry);
    if (!a) return;
    if (state.other < 0) {
      const other = partner(a);
      if (other) return R.set({ other: other.id });
    }
    const b = R.entry(state.other) || a;
    const look = [a.id, b.id, state.log, state.lang, document.documentElement.dataset.theme, body.clientWidth].join();
    if (look === drawn) return pair && point();
    drawn = look;
    fill();
    const unlike = a.kind !== b.kind;
    refusal.hidden = !unlike;
    body.hidden = unlike;
    refusal.textContent = R.t("compare.refuse", { a: R.name(a), b: R.name(b) });
    pair = null;
    if (!unlike) {
      const loaded = await load(a, b);
      if (state.entry !== a.id || (state.other !== b.id && b !== a)) return;
      pair = loaded;
      panels.forEach((panel, at) => {
        // a run that has the letter of its side is named enough by it; the pickers have the rest
        const [side, entry] = ["AB"[at], at ? b : a];
        const name = () => side + " · " + R.name(entry, R.data.models[entry.model].startsWith(side + ":"));
        panel.title.textContent = at === 2 ? "B − A" : name();
        panel.over.setAttribute("aria-label", R.t("compare.map", { name: panel.title.textContent }));
      });
      scale.textContent = R.t(pair.how === "relative" ? "legend.even" : "legend.shared");
      note.textContent = R.t("compare." + pair.how, { rows: pair.rows, cols: pair.cols, n: a.n, m: a.m, n2: b.n, m2: b.m });
      paint();
      point();
    }
    rankNow();
  }

  function mount(panel) {
    pickers = ["entry", "other"].map((name) => el("select", { onchange: (event) => R.set({ [name]: Number(event.target.value) }) }));
    const swap = say(el("button", { class: "button", type: "button", onclick: swapSides }), "compare.swap");
    note = el("p", { class: "note" });
    linked = el("p", { class: "linked", dir: "auto" });
    refusal = el("p", { class: "panel", hidden: true });
    legends = [el("canvas"), el("canvas")];
    scale = el("p", { class: "note" });
    panels = [0, 1, 2].map((at) => {
      const canvas = el("canvas", { class: "map-base", "aria-hidden": "true" });
      const over = el("canvas", { class: "map-over", tabindex: at ? "-1" : "0", role: at ? "img" : "application",
        onpointermove: onMove, onkeydown: onKey });
      const title = el("h3", { dir: "auto" });
      const legend = [() => [scale, legends[0]], () => [], () => [say(el("p", { class: "note" }), "legend.difference"), legends[1]]][at]();
      const box = el("div", { class: "panel" }, title, el("div", { class: "map-frame" }, canvas, over),
        el("div", { class: "legend" }, legend));
      return { canvas, over, title, box };
    });
    scope = el("select", { onchange: rankNow },
      ["own", "all"].map((value) => say(el("option", { value }), "compare.scope." + value)));
    ranking = el("p", { class: "note" });
    list = el("ol", { class: "bars pairs" });
    body = el("div", { class: "compare" }, panels.map((each) => each.box));
    panel.append(
      el("div", { class: "row bar" },
        el("label", { class: "field" }, "A", pickers[0]), el("label", { class: "field" }, "B", pickers[1]), swap,
        el("div", { class: "grow" }, note)),
      refusal, body, linked,
      el("section", { class: "panel" },
        el("div", { class: "row" }, say(el("h2", { class: "grow" }), "compare.ranking"),
          el("label", { class: "field" }, say(el("span"), "compare.scope"), scope)),
        ranking, list));
  }
  function swapSides() {
    if (state.other >= 0) R.set({ entry: state.other, other: state.entry });
  }
  // a head by itself has none to be compared with
  if (R.data.entries.length > 1) R.view("compare", { title: "view.compare", mount, show });
  R.key("x", "key.swap", swapSides, "compare");
})();
