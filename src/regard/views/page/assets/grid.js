// overview: every head as a thumbnail on one canvas, one colour norm, sortable
(() => {
  const { el, say } = R;
  const orders = {
    layer: null,
    entropy: (entry) => entry.stats.entropy ?? Infinity,
    local: (entry) => -entry.stats.local,
    first: (entry) => -entry.stats.first,
    received: (entry) => -entry.stats.received,
  };
  // where all heads have details, a mark for them says nothing
  const mixed = R.data.entries.some((entry) => !R.detailed(entry.id));
  const pooled = R.data.entries.every(R.pools);
  let gap = 8;
  let canvas, buttons, sorter, frame, legend, caption, detailBox, numbers, told;
  let order = "layer";
  let cells = [];
  let thumbs = null;
  let atlas = null;
  let active = -1;
  let size = 96;
  let columns = 1;
  let painted = "";

  const number = (x) => (Number.isFinite(x) ? R.number(x) : "–");
  const statistics = (entry) =>
    (R.broken(entry.id) ? R.t("nan.some") + ". " : "") + R.t("grid.stats", {
      entropy: number(entry.stats.entropy), first: number(entry.stats.first), local: number(entry.stats.local),
      received: number(entry.stats.received), distance: number(entry.stats.distance),
    });

  async function load() {
    const list = await Promise.all(R.data.entries.map((entry) => R.bytes(entry.blobs.thumb)));
    let most = 0;
    for (const { stored, numbers } of list) {
      let top = 0;
      for (let at = 0; at < stored.length; at++) if (stored[at] > top) top = stored[at];
      most = Math.max(most, numbers[top]);
    }
    const side = list.reduce((longest, { shape }) => Math.max(longest, ...shape), 1);
    return { list, most, side, across: Math.ceil(Math.sqrt(list.length)), at: new Map(R.data.entries.map((entry, at) => [entry.id, at])) };
  }
  // all thumbnails in one picture, by a table of 256 colours each: a thousand canvases would take a second
  function draw(norm) {
    const { list, side, across } = thumbs;
    const width = across * side, height = Math.ceil(list.length / across) * side;
    const canvas = el("canvas", { width, height });
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const ramp = R.ramp("sequential");
    const colours = new Uint32Array(256);
    list.forEach(({ stored, shape, numbers }, which) => {
      for (let byte = 0; byte < 256; byte++) {
        const from = 3 * Math.round(255 * Math.min(Math.max(norm.of(numbers[byte]), 0), 1));
        colours[byte] = 0xff000000 | (ramp[from + 2] << 16) | (ramp[from + 1] << 8) | ramp[from];
      }
      const start = Math.floor(which / across) * side * width + (which % across) * side;
      for (let r = 0; r < shape[0]; r++) {
        const row = stored.subarray(r * shape[1], (r + 1) * shape[1]);
        const empty = R.emptied(R.data.entries[which].id, row);
        for (let c = 0; c < shape[1]; c++) pixels[start + r * width + c] = empty ? 0xffbdb9b9 : colours[row[c]];
      }
    });
    context.putImageData(image, 0, 0);
    return canvas;
  }

  // ---- places ----
  // in layer order each attention is a line of its own; sorted, the heads flow
  function arrange(width) {
    const entries = [...R.data.entries];
    const lanes = [];
    for (const entry of entries) {
      const last = lanes[lanes.length - 1];
      if (last && last[0].name === entry.name && last[0].model === entry.model) last.push(entry);
      else lanes.push([entry]);
    }
    const widest = Math.max(...lanes.map((lane) => lane.length));
    const gutter = order === "layer" ? (R.data.models.length > 1 ? 64 : 40) : 0;
    const room = width - gutter;
    const ideal = order === "layer" ? widest : Math.ceil(Math.sqrt(entries.length * 1.6));
    gap = room / ideal < 56 ? 3 : 8;
    const tall = order === "layer" ? Math.floor(640 / lanes.length) : 128;
    const fitting = Math.floor((room + gap) / ideal) - gap;
    // a line that would need specks wraps instead
    size = fitting < 20 ? 40 : Math.min(176, Math.max(tall, 72), fitting);
    columns = Math.max(1, Math.floor((room + gap) / (size + gap)));
    cells = [];
    const lead = order === "layer" ? 0 : 20;
    const pitch = { x: size + gap, y: size + gap + lead };
    if (order !== "layer") {
      entries.sort((a, b) => orders[order](a) - orders[order](b) || a.id - b.id);
      lanes.splice(0, lanes.length, entries);
    }
    let top = 0;
    for (const lane of lanes) {
      lane.forEach((entry, at) => {
        const line = Math.floor(at / columns);
        const y = top + line * pitch.y;
        cells.push({ entry, x: gutter + (at % columns) * pitch.x, y, line: y, first: at === 0, gutter, lead });
      });
      top += Math.ceil(lane.length / columns) * pitch.y;
    }
    return Math.max(top - gap, size);
  }

  // ---- paint ----
  function paint() {
    const width = Math.max(240, frame.clientWidth);
    const height = arrange(width);
    const context = R.canvas(canvas, width, height);
    const { log } = R.state;
    const norm = R.norm(thumbs.most, log, 3);
    if (!atlas || atlas.log !== log) atlas = { log, canvas: draw(norm) };
    context.font = R.font(12);
    context.textBaseline = "middle";
    const quiet = R.css("--quiet");
    for (const { entry, x, y, first, gutter, lead } of cells) {
      const which = thumbs.at.get(entry.id);
      const { shape } = thumbs.list[which];
      const [left, top] = [(which % thumbs.across) * thumbs.side, Math.floor(which / thumbs.across) * thumbs.side];
      context.imageSmoothingEnabled = shape[0] > size;
      context.drawImage(atlas.canvas, left, top, shape[1], shape[0], x, y, size, size);
      if (R.broken(entry.id)) strike(context, x, y);
      context.fillStyle = quiet;
      if (gutter && first) {
        const sign = entry.kind === "cross" ? "×" : "";
        context.fillText(R.clip(context, R.letter(entry) + R.t("grid.lane", { layer: entry.layer }) + sign, gutter - 8), 0, y + size / 2);
      }
      if (lead) {
        const value = number(entry.stats[order]);
        context.fillText(R.clip(context, R.letter(entry) + entry.layer + "." + entry.head + "  " + value, size), x, y + size + 10);
      }
    }
    R.legend(legend, norm);
    buttons.style.height = height + "px";
    place();
  }
  function strike(context, x, y) {
    for (const [colour, line] of [["#000000", 4], ["#ffffff", 1.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.beginPath();
      context.moveTo(x + 3, y + 3);
      context.lineTo(x + size - 3, y + size - 3);
      context.moveTo(x + size - 3, y + 3);
      context.lineTo(x + 3, y + size - 3);
      context.stroke();
    }
    if (size >= 48) R.tag(context, "NaN", x + size / 2, y + size / 2, "center");
  }
  // one real button for each head lies over the canvas, so that keyboard and reader find every head
  function place() {
    const made = cells.map(({ entry, x, y }, at) => {
      const button = el("button", {
        class: "thumb", type: "button", "aria-label": R.name(entry) + ". " + statistics(entry),
        tabindex: entry.id === active ? "0" : "-1", dataset: { id: entry.id, at },
        "aria-current": entry.id === R.state.entry ? "true" : null,
      });
      Object.assign(button.style, { left: x + "px", top: y + "px", width: size + "px", height: size + "px" });
      button.classList.toggle("detailed", mixed && R.detailed(entry.id));
      return button;
    });
    buttons.replaceChildren(...made);
  }
  const cellOf = (event) => {
    const button = event.target.closest(".thumb");
    return button ? cells[Number(button.dataset.at)] : null;
  };
  function tell(entry) {
    told = entry;
    caption.textContent = R.name(entry);
    R.badge(detailBox, entry);
    // a label has no place among the tokens
    const names = ["entropy", "first", ...(R.pools(entry) ? [] : ["local", "distance"]), "received"];
    numbers.replaceChildren(...names.map((name) =>
      el("div", {}, R.write(el("dt"), R.about(entry, "stat." + name)), el("dd", { class: "number" }, number(entry.stats[name])))));
  }
  function open(entry) {
    R.set({ entry: entry.id, view: "map", zoom: null });
  }
  function move(event) {
    const from = cells.findIndex(({ entry }) => entry.id === active);
    if (from < 0 || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const last = cells.length - 1;
    const here = cells[from];
    // up and down go to the head in the next line whose place is nearest
    const line = (down) => {
      const others = cells.filter((cell) => (down ? cell.y > here.y : cell.y < here.y));
      if (!others.length) return from;
      const y = down ? Math.min(...others.map((cell) => cell.y)) : Math.max(...others.map((cell) => cell.y));
      const near = others.filter((cell) => cell.y === y);
      near.sort((a, b) => Math.abs(a.x - here.x) - Math.abs(b.x - here.x));
      return cells.indexOf(near[0]);
    };
    const to = {
      ArrowRight: () => Math.min(from + 1, last), ArrowLeft: () => Math.max(from - 1, 0), Home: () => 0, End: () => last,
      ArrowDown: () => line(true), ArrowUp: () => line(false),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    focus(cells[to()].entry.id);
  }
  function focus(id) {
    active = id;
    for (const button of buttons.children) button.tabIndex = Number(button.dataset.id) === id ? 0 : -1;
    const button = buttons.querySelector(`[data-id="${id}"]`);
    if (button) button.focus();
  }

  function mount(panel) {
    canvas = el("canvas", { "aria-hidden": "true" });
    buttons = el("div", { class: "thumbs", role: "group", onkeydown: move,
      onclick: (event) => cellOf(event) && open(cellOf(event).entry),
      onpointerover: (event) => cellOf(event) && tell(cellOf(event).entry),
      onfocusin: (event) => {
        active = cellOf(event).entry.id;
        tell(cellOf(event).entry);
      } });
    say(buttons, "grid.label", "aria-label");
    sorter = el("select", { onchange: () => {
      order = sorter.value;
      paint();
      R.announce(R.t("grid.sorted", { order: R.t("grid.order." + order) }));
    } }, Object.keys(orders).map((name) => say(el("option", { value: name }), "grid.order." + name)));
    legend = el("canvas");
    caption = el("h2", { dir: "auto" });
    detailBox = el("span", { class: "chip" });
    numbers = el("dl", { class: "numbers" });
    const opener = say(el("button", { class: "button", type: "button", onclick: () => told && open(told) }), "grid.open");
    frame = el("div", { class: "grid-frame" }, canvas, buttons);
    panel.append(
      el("div", { class: "row bar" },
        el("label", { class: "field" }, say(el("span"), "grid.sort"), sorter),
        say(el("span", { class: "note grow" }), pooled ? "grid.hint.pooled" : mixed ? "grid.hint.mixed" : "grid.hint"),
        R.data.entries.some(({ id }) => R.broken(id)) ? say(el("span", { class: "chip crossed" }), "nan.legend") : null,
        el("figure", { class: "legend" }, say(el("figcaption", { class: "note" }), pooled ? "legend.share.pooled" : "legend.share"), legend)),
      el("div", { class: "map-columns" }, el("div", { class: "panel map-panel" }, frame),
        el("aside", { class: "panel map-aside grid-aside" }, caption, el("p", {}, detailBox), numbers, opener)));
  }

  async function show(state, patch) {
    thumbs = thumbs || (await load());
    active = active < 0 || "entry" in patch ? state.entry : active;
    const look = [frame.clientWidth, state.log, state.lang, document.documentElement.dataset.theme, state.entry].join();
    if (look === painted) return;
    painted = look;
    paint();
    if (R.entry(active)) tell(R.entry(active));
  }
  R.view("grid", { title: "view.grid", mount, show });
})();
