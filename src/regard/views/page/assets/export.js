// Export: the view as SVG (text stays text, maps are embedded pictures) or PNG at twice the size, its numbers as CSV.
(() => {
  const kit = R.kit;
  const SKIPPED = "input, select, textarea, .control, .controls, .button, .pager, .visually-hidden, dialog, [hidden]";
  const INLINED = [
    "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "opacity", "font-size", "font-family",
    "font-weight", "font-style", "text-anchor", "paint-order", "image-rendering", "display",
  ];

  // ---- files ----
  kit.fileName = (kind, ending) => {
    const entry = R.entry(R.state.entry);
    const where = entry ? `layer${entry.layer}-head${entry.head}` : "";
    const plain = ["attention", R.data.title, where, kind].filter(Boolean).join("-").normalize("NFKC");
    return plain.replace(/[^\p{L}\p{N}_-]+/gu, "-").replace(/-+/g, "-").slice(0, 90).replace(/-$/, "") + "." + ending;
  };
  kit.download = (blob, name) => {
    const link = R.el("a", { download: name, class: "visually-hidden" });
    link.href = URL.createObjectURL(blob);
    document.body.append(link);
    link.click();
    link.remove();
    // the browser reads the address after the click: it may not vanish at once
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    R.announce(R.t("export.saved", { name }));
  };

  // ---- CSV ----
  // a spreadsheet would run what begins like a formula: such text gets an apostrophe in front; numbers are ours
  kit.cell = (value) => {
    if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(7)));
    let text = String(value ?? "");
    if (/^[\s\uFEFF]*[=+\-@\u2212\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u.test(text)) text = "'" + text;
    return /[",\r\n]|^\s|\s$/u.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  kit.csv = (heads, rows) => "\uFEFF" + [heads, ...rows].map((row) => row.map(kit.cell).join(",")).join("\r\n") + "\r\n";
  const save = (kind, heads, rows) => kit.download(
    new Blob([kit.csv(heads, rows)], { type: "text/csv;charset=utf-8" }), kit.fileName(kind, "csv"),
  );
  const raw = (side, k) => kit.side(side).labels[k] ?? "";

  async function saveRow() {
    const entry = R.entry(R.state.entry);
    const { row } = await R.shown(entry.id, R.state.query);
    if (!row) return tell("row.none");
    save(
      "query" + R.state.query, ["key", "token", "weight"], Array.from(row, (weight, k) => [k, raw(entry.keys, k), weight]),
    );
  }
  // thousands of rows take a while: the page stays awake, says how far it is, and stops when the dialog is closed
  let since = 0;
  async function pause(done, all) {
    if (performance.now() - since < 40) return;
    message.textContent = R.t("export.progress", { done, all });
    await new Promise((next) => setTimeout(next, 0));
    since = performance.now();
    if (!document.getElementById("export")) throw new Error("closed");
  }
  async function saveTop() {
    const entry = R.entry(R.state.entry);
    if (R.rowKind(entry.id) === "none") return tell("row.none");
    const rows = [];
    for (let query = 0; query < entry.n; query += 1) {
      const tops = await kit.listed(entry, query);
      await pause(query, entry.n);
      tops.forEach(([key, weight], rank) => rows.push([
        query, raw(entry.queries, query), rank + 1, key, raw(entry.keys, key), weight,
      ]));
    }
    save("top", ["query", "query token", "rank", "key", "key token", "weight"], rows);
  }
  function saveHeads() {
    const { heads, rows } = kit.headRows();
    save("heads", heads, rows.map(({ cells }) => cells));
  }
  async function saveQueries() {
    const entry = R.entry(R.state.entry);
    const { heads, rows } = await kit.queryRows(entry, 0, entry.n, (query) => pause(query, entry.n));
    save("queries", heads, rows);
  }

  // ---- the view as SVG ----
  const pen = document.createElement("canvas").getContext("2d");
  const seen = (colour) => colour && colour !== "transparent" && !/, 0\)$/.test(colour);

  function words(node, style, parts, x0, y0, opacity) {
    const range = document.createRange();
    const lines = [];
    range.selectNodeContents(node);
    const rects = range.getClientRects();
    if (!rects.length || !node.data.trim()) return;
    const signs = rects.length === 1 ? [node.data] : node.data.match(/\s*\S+|\s+$/gu) || [];
    let at = 0;
    for (const sign of signs) {
      range.setStart(node, at);
      range.setEnd(node, (at += sign.length));
      const rect = range.getClientRects()[range.getClientRects().length - 1];
      const line = lines[lines.length - 1];
      if (line && rect && Math.abs(line.rect.top - rect.top) < 2) line.text += sign;
      else if (rect) lines.push({ rect, text: line ? sign.trimStart() : sign });
    }
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: below } = pen.measureText("x");
    for (const { rect, text } of lines) {
      const right = style.direction === "rtl";
      const base = rect.top + (rect.height * up) / (up + below || 1) - y0;
      parts.push(kit.svg("text", {
        x: (right ? rect.right : rect.left) - x0, y: base, fill: style.color, "font-size": style.fontSize,
        "font-family": style.fontFamily, "font-weight": style.fontWeight, "font-style": style.fontStyle, direction: style.direction, "xml:space": "preserve", opacity,
      }, text.replace(/\n/g, " ")));
    }
  }

  function box(element, style, parts, x0, y0, opacity) {
    const { left, top, width, height } = element.getBoundingClientRect();
    const drawn = (size, kind) => parseFloat(size) > 0 && kind !== "none";
    const line = drawn(style.borderTopWidth, style.borderTopStyle) ? [style.borderTopColor, style.borderTopWidth] : null;
    const rim = drawn(style.outlineWidth, style.outlineStyle) ? [style.outlineColor, style.outlineWidth] : line;
    const block = (more) => parts.push(kit.svg("rect", { x: left - x0, y: top - y0, width, height, opacity, ...more }));
    const foot = (tall, fill, more = {}) => block({ y: top - y0 + height - tall, height: tall, fill, ...more });
    if (!width) return;
    if (!line && drawn(style.borderBottomWidth, style.borderBottomStyle) && seen(style.borderBottomColor)) {
      foot(parseFloat(style.borderBottomWidth), style.borderBottomColor);
    }
    if (!seen(style.backgroundColor) && !rim) return;
    const fill = seen(style.backgroundColor) ? style.backgroundColor : "none";
    const [stroke, thick] = rim || ["none", 0];
    block({ fill, stroke, "stroke-width": thick, rx: parseFloat(style.borderRadius) || 0 });
    const bar = getComputedStyle(element, "::after");
    if (element.matches(".token, .align-pick") && parseFloat(bar.height) > 0) {
      foot(parseFloat(bar.height), bar.backgroundColor, { width: parseFloat(bar.width) || 0 });
    }
  }

  function copy(element, x0, y0) {
    const twin = element.cloneNode(true);
    const [mine, theirs] = [[element, ...element.querySelectorAll("*")], [twin, ...twin.querySelectorAll("*")]];
    mine.forEach((one, k) => {
      const style = getComputedStyle(one);
      for (const name of INLINED) {
        const value = style.getPropertyValue(name);
        if (value) theirs[k].setAttribute(name, value);
      }
      for (const name of ["class", "style", "tabindex", "role"]) theirs[k].removeAttribute(name);
    });
    const rect = element.getBoundingClientRect();
    const place = { x: rect.left - x0, y: rect.top - y0, width: rect.width, height: rect.height };
    for (const [name, value] of Object.entries(place)) twin.setAttribute(name, value);
    return twin;
  }

  function walk(element, parts, x0, y0, above = 1) {
    if (element.matches(SKIPPED)) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden") return;
    const opacity = above * Number(style.opacity);
    if (element.tagName === "svg") return void parts.push(copy(element, x0, y0));
    if (element.tagName === "CANVAS" || element.tagName === "IMG") {
      const rect = element.getBoundingClientRect();
      const href = element.tagName === "IMG" ? element.src : element.width && element.height ? element.toDataURL() : "";
      if (!href || !rect.width) return;
      const place = { x: rect.left - x0, y: rect.top - y0, width: rect.width, height: rect.height };
      parts.push(kit.svg("image", { ...place, opacity, filter: style.filter, preserveAspectRatio: "none", href }));
      return;
    }
    box(element, style, parts, x0, y0, opacity);
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) words(child, style, parts, x0, y0, opacity);
      else if (child.nodeType === Node.ELEMENT_NODE) walk(child, parts, x0, y0, opacity);
    }
  }

  kit.picture = (panel) => {
    // what scrolls is unrolled while it is measured; nothing is painted in between
    panel.classList.add("unrolled");
    try {
      const { left, top } = panel.getBoundingClientRect();
      const [width, height] = [Math.ceil(panel.scrollWidth) + 32, Math.ceil(panel.scrollHeight) + 64];
      const parts = [];
      walk(panel, parts, left - 16, top - 48);
      const entry = R.entry(R.state.entry);
      const title = [R.data.title, entry && R.name(entry), R.state.sinks && R.t("sinks.note")].filter(Boolean).join(" · ");
      const font = { "font-size": 15, "font-weight": 600, "font-family": getComputedStyle(document.body).fontFamily };
      const svg = kit.svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, kit.svg("title", {}, title),
        kit.svg("rect", { width, height, fill: R.css("--page") }),
        kit.svg("text", { x: 16, y: 30, ...font, fill: R.css("--ink") }, kit.plain(title)), ...parts);
      // XML knows no control characters: they would make the whole picture unreadable
      const text = new XMLSerializer().serializeToString(svg).replace(
        /[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD",
      );
      return { text, width, height };
    } finally {
      panel.classList.remove("unrolled");
    }
  };

  async function savePng(found) {
    const url = URL.createObjectURL(new Blob([found.text], { type: "image/svg+xml" }));
    try {
      const image = new Image();
      image.src = url;
      await image.decode();
      const scale = Math.min(2, 16000 / Math.max(found.width, found.height));
      const canvas = document.createElement("canvas");
      canvas.width = Math.round(found.width * scale);
      canvas.height = Math.round(found.height * scale);
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
      if (!blob) return tell("export.failed");
      kit.download(blob, kit.fileName(R.state.view, "png"));
    } finally {
      URL.revokeObjectURL(url);
    }
  }
  const saveSvg = (found) => kit.download(
    new Blob([found.text], { type: "image/svg+xml" }), kit.fileName(R.state.view, "svg"),
  );

  // ---- the dialog ----
  const message = R.el("p", { class: "quiet", role: "status", id: "export-message" });
  const tell = (key) => (message.textContent = R.t(key));
  kit.dialog = (id, title, ...parts) => {
    const heading = R.el("h2", { id: id + "-title" }, R.t(title));
    const close = kit.press("dialog.close", () => dialog.close(), { id: id + "-close" });
    const dialog = R.el(
      "dialog", { id, class: "dialog", "aria-labelledby": id + "-title" }, heading, ...parts,
      R.el("div", { class: "row dialog-foot" }, close),
    );
    // beside the dialog is outside of it
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    const back = document.activeElement;
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (back && back.isConnected) back.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
    return dialog;
  };
  kit.export = () => {
    if (document.getElementById("export")) return;
    const panel = document.getElementById("view-" + R.state.view);
    const choice = (id, key, work) =>
      kit.press(
        key,
        () => Promise.resolve().then(work).then(
          (told) => told || tell("export.done"), () => tell("export.failed"),
        ),
        { id, class: "button wide" },
      );
    message.textContent = "";
    kit.dialog("export", "export.title", R.el("div", { class: "choices" },
      choice("export-png", "export.png", () => savePng(kit.picture(panel))),
      choice("export-svg", "export.svg", () => saveSvg(kit.picture(panel))),
      choice("export-row", "export.row", saveRow),
      choice("export-top", "export.top", saveTop),
      choice("export-queries", "export.queries", saveQueries),
      choice("export-heads", "export.heads", saveHeads)),
      R.el("p", { class: "note" }, R.t("export.html")), message);
  };
})();
