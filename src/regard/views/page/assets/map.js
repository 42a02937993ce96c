// map: the coarse picture at once, exact weights of the window as soon as they are computed
(() => {
  const { el, say, state } = R;
  // multiply-adds for one window; about half a second
  const budget = 4e8;
  // what lies under the map: what keys receive, and the chosen row
  const under = 112;
  let base, over, frame, masks, voids, about, readout, topTitle, topList, legend, progress;
  let [coarse, exact, dots, margins, job, box, norm, drag] = [null, null, null, null, null, null, null, null];
  let drawn = "";
  let started = 0;
  let turned = 0;

  const entryNow = () => R.entry(state.entry);
  const windowNow = () => state.zoom || [0, entryNow().n, 0, entryNow().m];

  // ---- layout ----
  function measure() {
    const entry = entryNow();
    const width = Math.max(280, frame.clientWidth);
    const small = width < 560, right = small ? 54 : 64;
    const left = R.gutter(entry.queries, entry.n, small ? 72 : 128), top = R.gutter(entry.keys, entry.m, small ? 72 : 112);
    const [first, last, from, to] = windowNow();
    const room = Math.min(width - left - right, 960);
    // the labels, the strips and the hint are to be seen with the map
    const tall = Math.max(200, Math.min(window.innerHeight - top - under - 96, 900));
    const aspect = Math.min(Math.max((last - first) / (to - from), 0.35), 2.5);
    const wide = Math.floor(Math.max(Math.min(room, (to - from) * 72, tall / aspect), 40));
    const high = Math.floor(Math.max(Math.min(wide * aspect, tall), 40));
    return { x: left, y: top, width: wide, height: high, right, whole: left + wide + right };
  }

  // ---- paint ----
  function paint() {
    const entry = entryNow();
    box = measure();
    const win = windowNow();
    const bottom = box.y + box.height;
    const height = bottom + under;
    const context = R.canvas(base, box.whole, height);
    frame.style.height = height + "px";
    R.hatch(context, box.x, box.y, box.width, box.height);
    const most = exact ? exact.most : R.mostIn(coarse, dots, win);
    // weights below zero, which some weighers give, need colours with a middle
    const least = -(exact || coarse).least;
    if (least > most * 1e-6) norm = { ...R.signedNorm(Math.max(most, least)), kind: "diverge" };
    else norm = { ...R.norm(most, state.log, entry.m > 256 ? 4 : 3), kind: "sequential" };
    const wide = box.width / (win[3] - win[2]), high = box.height / (win[1] - win[0]);
    context.save();
    context.beginPath();
    context.rect(box.x, box.y, box.width, box.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    // while the reader moves, the last exact picture stays on the coarse one until the next is ready
    for (const layer of exact ? [coarse, exact] : [coarse]) {
      const [top, end, left, right] = layer.covers;
      const at = [box.x + (left - win[2]) * wide, box.y + (top - win[0]) * high, (right - left) * wide, (end - top) * high];
      R.hatch(context, ...at);
      context.drawImage(R.pictureOf(layer, norm), ...at);
      if (layer.broken) R.voids(context, layer.cells, layer.rows, layer.cols, at);
    }
    if (dots) R.dots(context, dots, win, box, norm);
    context.restore();
    context.strokeStyle = R.css("--edge");
    context.strokeRect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
    R.rowLabels(context, entry.queries, [win[0], win[1]], box, box.x);
    R.colLabels(context, entry.keys, [win[2], win[3]], box, box.y);
    paintMargins(context, win, bottom);
    R.legend(legend, norm, norm.kind, 260);
  }
  function paintMargins(context, win, bottom) {
    if (!margins) return;
    const [entropy, received] = margins;
    if (entropy) {
      const strip = { x: box.x + box.width + 8, y: box.y, width: box.right - 16, height: box.height };
      R.strip(context, entropy, [win[0], win[1]], strip, { upright: false, colour: "--edge" });
      R.caption(context, box.x - 12, R.t("map.entropy"), strip.x + strip.width, box.y - 10, "right");
    }
    if (received) {
      const strip = { x: box.x, y: bottom + 8, width: box.width, height: 36 };
      R.strip(context, received, [win[2], win[3]], strip, { colour: "--edge" });
      R.caption(context, box.x - 12, R.t("map.received"), box.x - 8, bottom + 26, "right");
    }
  }
  async function paintOver() {
    const entry = entryNow();
    const { query, key } = state;
    const win = windowNow();
    const context = R.canvas(over, box.whole, box.y + box.height + under);
    R.cross(context, box, win, query, key);
    const high = box.height / (win[1] - win[0]), wide = box.width / (win[3] - win[2]);
    const x = box.x + (key - win[2] + 0.5) * wide, y = box.y + (query - win[0] + 0.5) * high;
    const [rowSeen, colSeen] = [query >= win[0] && query < win[1], key >= win[2] && key < win[3]];
    if (rowSeen) R.tag(context, query + " " + R.label(entry.queries, query), box.x - 4, y, "right", box.x - 8);
    if (colSeen) R.tag(context, key + " " + R.label(entry.keys, key), x, box.y - 14, "center");
    const { row, hidden } = await R.shown(entry.id, query);
    if (entry.id !== state.entry || query !== state.query) return;
    if (row && rowSeen && colSeen) {
      // beside the pair, on the side where there is room
      const late = x > box.x + box.width / 2;
      const below = Math.min(y + high / 2 + 16, box.y + box.height - 12);
      R.tag(context, valueOf(row, key), late ? x - wide / 2 - 8 : x + wide / 2 + 8, below, late ? "right" : "left");
    }
    const strip = { x: box.x, y: box.y + box.height + 52, width: box.width, height: 56 };
    if (row) {
      R.strip(context, row, [win[2], win[3]], strip, { colour: "--accent" });
      R.caption(context, box.x - 12, R.t(R.about(entry, "map.row")), box.x - 8, strip.y + 28, "right");
    }
    tell(row, hidden);
    if (started) {
      performance.measure("regard-row", { start: started, end: performance.now() });
      started = 0;
    }
  }
  const valueOf = (row, key) => (row[key] || R.rowKind(state.entry) === "exact" ? R.number(row[key]) : R.t("map.below"));
  function tell(row, hidden) {
    const entry = entryNow();
    const { query, key } = state;
    const said = (key, values) => R.write(el("span"), R.about(entry, key), values);
    const parts = [said("map.query", { i: query, label: R.quoted(entry.queries, query) })];
    // a sentence each, with a space between
    const tellAll = () => readout.replaceChildren(...parts.flatMap((part, at) => (at ? [" ", part] : [part])));
    if (!row) {
      parts.push(R.t("rows.none.why"));
      tellAll();
      topList.replaceChildren();
      topTitle.hidden = true;
      return;
    }
    if (key >= 0) {
      parts.push(said("map.pair", { j: key, other: R.quoted(entry.keys, key), value: valueOf(row, key) }));
    }
    if (row.some(R.isVoid)) parts.push(R.t("nan.row"));
    else if (margins && margins[0]) parts.push(said("map.bits", { value: R.number(margins[0][query]) }));
    if (hidden) parts.push(said("map.hidden", { value: R.number(hidden) }));
    tellAll();
    const best = R.top(row, 10);
    topTitle.hidden = !best.length;
    const name = (j) => el("span", { class: "bar-label" }, el("bdi", {}, String(j)), " ", el("bdi", {}, R.label(entry.keys, j)));
    topList.replaceChildren(...best.map(([j, weight]) => R.barItem(name(j), R.number(weight), weight / best[0][1])));
  }

  // ---- which picture ----
  async function refine() {
    if (job) job.cancel();
    const entry = entryNow();
    const id = entry.id;
    const win = windowNow();
    const kind = R.rowKind(id);
    const size = (win[1] - win[0]) * (win[3] - win[2]);
    const hidden = state.sinks ? R.sinks(entry.keys) : [];
    const source = kind === "exact" ? await R.source(id) : null;
    if (id !== state.entry) return;
    const sharp = Math.min(window.devicePixelRatio || 1, 2);
    const cost = size * (source && source.width ? source.width : 1);
    if (source && cost <= budget) {
      progress.hidden = cost < 4e7;
      // a hand on the wheel passes through windows that nobody looks at
      if (cost > 4e6) await new Promise((resolve) => setTimeout(resolve, 80));
      if (id !== state.entry || win.join() !== windowNow().join()) return;
      const own = (job = R.slice(R.tile(source, win, [box.height, box.width].map((side) => Math.round(side * sharp)), hidden)));
      const tile = await own.promise;
      if (!tile || own !== job) return;
      progress.hidden = true;
      const { cells } = tile;
      exact = { ...tile, id, covers: win, most: R.largest(cells), least: R.least(cells), broken: cells.some(R.isVoid) };
      about.textContent = R.t(source.map ? "map.every" : R.about(entry, "map.exact")) + (state.sinks ? " " + R.t("map.sinks") : "");
    } else {
      const [tall, wide] = coarse.width;
      const text = coarse.name === "thumb" ? "map.thumb" : kind === "exact" ? "map.blocks" : "map.dots";
      about.textContent = R.t(text, { rows: tall, cols: wide }) + (state.sinks ? " " + R.t("map.sinks.rows") : "");
      exact = null;
      dots = kind === "top" && size <= 4e6 ? await R.loadDots(entry) : null;
      if (id !== state.entry) return;
    }
    paint();
    paintOver();
  }
  async function show(now, patch) {
    const entry = entryNow();
    if (!entry) return;
    const { theme } = document.documentElement.dataset;
    const look = [entry.id, state.zoom, state.log, state.sinks, state.lang, theme, frame.clientWidth].join();
    if (look === drawn) return paintOver();
    const id = entry.id;
    const load = (name) => (name in entry.blobs ? R.blob(entry.blobs[name]) : null);
    const loads = [R.layer(id), load("entropy"), load("received")];
    const [loaded, entropy, received] = await Promise.all(loads);
    if (id !== state.entry) return;
    margins = [entropy, received];
    if (!exact || exact.id !== id || "sinks" in patch) exact = null;
    dots = null;
    coarse = loaded;
    masks.hidden = !coarse.masked;
    voids.hidden = !R.broken(id);
    over.setAttribute("aria-label", R.t("map.label", { name: R.name(entry) }));
    paint();
    drawn = look;
    // the map is seen first; its row and finer weights follow when their numbers are unpacked
    const follow = () => {
      if (look !== drawn) return;
      paintOver();
      refine();
    };
    if ("zoom" in patch) follow();
    else R.frame().then(R.frame).then(follow);
  }

  // ---- hands ----
  function place(event) {
    const area = over.getBoundingClientRect();
    const win = windowNow();
    const i = win[0] + ((event.clientY - area.top - box.y) / box.height) * (win[1] - win[0]);
    const j = win[2] + ((event.clientX - area.left - box.x) / box.width) * (win[3] - win[2]);
    return { i, j, inside: i >= win[0] && i < win[1] && j >= win[2] && j < win[3] };
  }
  function zoom(factor, i = state.query, j = Math.max(state.key, 0)) {
    const { n, m } = entryNow();
    const win = windowNow();
    // from the keyboard the place may be out of sight: go there first
    const seen = i >= win[0] && i < win[1] && j >= win[2] && j < win[3];
    R.set({ zoom: R.zoomed(seen ? win : R.centred(win, i, j, n, m), factor, i, j, n, m) });
  }
  function onMove(event) {
    if (!box) return;
    if (drag && event.buttons) {
      const { n, m } = entryNow();
      const [down, along] = [drag.y - event.clientY, drag.x - event.clientX];
      if (!drag.moved && Math.hypot(down, along) < 4) return;
      drag.moved = true;
      if (state.zoom) R.set({ zoom: R.panned(drag.win, down / box.height, along / box.width, n, m) });
      return;
    }
    const { i, j, inside } = place(event);
    if (!inside) return;
    started = started || performance.now();
    R.hover(Math.floor(i), Math.floor(j));
  }
  function onUp(event) {
    const moved = drag && drag.moved;
    drag = null;
    const { i, j, inside } = place(event);
    if (!moved && inside) R.set({ query: Math.floor(i), key: Math.floor(j), pinned: !state.pinned || Math.floor(i) !== state.query });
  }
  function onWheel(event) {
    const { i, j, inside } = place(event);
    // a plain wheel scrolls the page; a pinch on a touch pad comes as a wheel with Ctrl
    if (!inside || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    // a touch pad sends many small turns: they add up to steps
    turned += Math.max(-200, Math.min(event.deltaY * (event.deltaMode ? 33 : 1), 200));
    if (Math.abs(turned) < 40) return;
    zoom(Math.exp(turned * 0.0022), i, j);
    turned = 0;
  }
  function onKey(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const { n, m } = entryNow();
    const query = Math.min(Math.max(state.query + move[0], 0), n - 1);
    const key = Math.min(Math.max(state.key + move[1], 0), m - 1);
    const win = windowNow();
    const seen = query >= win[0] && query < win[1] && key >= win[2] && key < win[3];
    started = performance.now();
    R.set({ query, key, ...(seen ? {} : { zoom: R.centred(win, query, key, n, m) }) });
    setTimeout(() => R.announce(readout.textContent), 150);
  }

  function mount(panel) {
    base = el("canvas", { class: "map-base", "aria-hidden": "true" });
    over = el("canvas", { class: "map-over", tabindex: "0", role: "application", "aria-describedby": "map-readout",
      onpointermove: onMove, onpointerup: onUp, onkeydown: onKey, ondblclick: (event) => {
        const { i, j, inside } = place(event);
        if (inside) zoom(0.5, i, j);
      }, onpointerdown: (event) => (drag = { x: event.clientX, y: event.clientY, win: windowNow(), moved: false }) });
    over.addEventListener("wheel", onWheel, { passive: false });
    frame = el("div", { class: "map-frame" }, base, over);
    about = el("span", { class: "note grow" });
    progress = say(el("span", { class: "chip", hidden: true }), "map.computing");
    masks = say(el("span", { class: "chip hatched", hidden: true }), "map.hatched");
    voids = say(el("span", { class: "chip crossed", hidden: true }), "nan.legend");
    readout = el("p", { id: "map-readout", dir: "auto" });
    topTitle = say(el("h3"), "map.top");
    topList = el("ol", { class: "bars" });
    legend = el("canvas");
    const button = (key, sign, fn) => say(el("button", { class: "button square", type: "button", onclick: fn }, sign), key, "aria-label");
    const hint = say(el("p", { class: "note map-hint" }), "map.hint");
    const aside = el("aside", { class: "panel map-aside" }, say(el("h2"), "map.row.title"), readout, topTitle, topList);
    panel.append(
      el("div", { class: "row bar" },
        el("div", { class: "row" }, button("map.in", "+", () => zoom(0.5)), button("map.out", "−", () => zoom(2)),
          button("map.reset", "⤢", () => R.set({ zoom: null }))),
        about, progress, masks, voids,
        el("figure", { class: "legend" }, say(el("figcaption", { class: "note" }), "legend.weight"), legend)),
      el("div", { class: "map-columns" }, el("div", { class: "panel map-panel" }, frame, hint), aside));
  }
  R.view("map", { title: "view.map", mount, show });
  R.key("z", "key.zoom", () => zoom(0.5), "map");
  R.key("+", "key.zoom", () => zoom(0.5), "map");
  R.key("-", "key.out", () => zoom(2), "map");
  R.key("0", "key.reset", () => R.set({ zoom: null }), "map");
})();
