// Alignment of an encoder-decoder's two texts: a column for each and the map of a stretch of both.
(() => {
  const kit = R.kit;
  const ROWS = 40; // of each text at once: what can be read without scrolling far
  const aligns = (entry) => entry.kind === "cross" && !R.pools(entry);
  if (!R.data.entries.some(aligns)) return;

  kit.view("align", "view.align", (place) => {
    const mode = { drop: true, row: 0, column: 0 };
    const draw = kit.latest();
    const note = R.el("p", { class: "note", id: "align-note" });
    const summary = R.el("p", { class: "row-summary", id: "align-summary" });
    const broken = kit.warning("align-broken", "row.nanMark");
    const targets = R.el("ol", { class: "align-column", id: "align-targets" });
    const sources = R.el("ol", { class: "align-column", id: "align-sources" });
    const titles = [R.el("h3", { id: "align-target-title" }), R.el("h3", { id: "align-source-title" })];
    const picture = kit.svg("svg", { class: "align-map", id: "align-map", role: "img" });
    const raster = document.createElement("canvas");
    const pages = R.el("div", { class: "row" });
    const legend = R.el("canvas");
    const body = R.el(
      "div",
      { class: "align" },
      R.el("div", { class: "align-side" }, titles[0], targets),
      R.el("div", { class: "align-side" }, titles[1], sources),
      R.el(
        "div", { class: "picture" },
        R.el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": R.t("align.map") }, picture),
        R.el("figure", { class: "legend" }, R.el("figcaption", { class: "note" }, R.t("legend.weight")), legend),
      ),
    );
    const choose = () => {
      const all = R.data.entries.filter(aligns);
      R.set({ entry: (all.find((entry) => R.rowKind(entry.id) !== "none") || all[0]).id, query: 0, key: -1 });
    };
    const other = kit.press("align.choose", choose, { id: "align-choose" });
    place.append(
      R.el(
        "div",
        { class: "row controls", role: "group", "aria-label": R.t("controls") },
        kit.check("align-drop", "align.drop", mode.drop, (on) => {
          mode.drop = on;
          show(R.state, {});
        }),
        pages,
      ),
      R.el("p", { class: "note", id: "align-rule" }, R.t(R.data.produced ? "align.rule" : "align.ruleRead")),
      summary,
      broken,
      other,
      body,
      note,
    );

    const kept = (side) => {
      const labels = kit.side(side).labels;
      const all = labels.map((_, k) => k);
      const some = all.filter((k) => !mode.drop || !kit.special(side, k));
      return some.length ? some : all;
    };

    async function collect(entry, rows, columns, query) {
      const cells = await Promise.all(rows.map((row) => R.shown(entry.id, row)));
      const own = await R.shown(entry.id, query);
      if (!own || !own.row) return { entry, none: true };
      return { entry, rows, columns, query, cells: cells.map((one) => one.row), own: own.row };
    }

    const list = (element, side, tokens, weights, chosen, pick) => {
      const most = (weights && kit.largest(tokens.map((k) => weights[k]))) || 1;
      element.replaceChildren(
        ...tokens.map((k) => {
          const part = weights ? weights[k] / most : 0;
          const share = kit.stretch(part);
          const name = R.el("span", { class: "align-token", dir: "auto" }, R.label(side, k));
          const parts = [R.el("span", { class: "quiet align-index" }, String(k)), name];
          if (weights) parts.push(R.el("span", { class: "align-weight" }, R.number(weights[k])));
          const marks = "align-pick" + (k === chosen ? " query" : "") + (kit.special(side, k) ? " special" : "")
            + (weights && weights[k] !== weights[k] ? " unknown" : "");
          const button = R.el(
            "button",
            { class: marks, type: "button", "data-index": k, "aria-pressed": String(k === chosen), onclick: () => pick(k) },
            ...parts,
          );
          button.style.setProperty("--weight", kit.bar(part));
          if (weights && share > 0.03) {
            const { fill, ink } = kit.shade(share);
            button.style.backgroundColor = fill;
            button.style.color = ink;
          }
          if (!weights) button.addEventListener("pointerenter", () => R.hover(k, -1));
          return R.el("li", {}, button);
        }),
      );
    };

    function map({ entry, rows, columns, cells, query }) {
      raster.width = columns.length;
      raster.height = rows.length;
      const pen = raster.getContext("2d");
      cells.forEach((row, r) =>
        columns.forEach((column, c) => {
          pen.fillStyle = row[column] === row[column] ? R.colour(kit.stretch(row[column])) : R.css("--unknown");
          pen.fillRect(c, r, 1, 1);
        }),
      );
      const long = (side, tokens) => tokens.reduce(
        (most, k) => Math.max(most, Math.min(14, [...R.label(side, k)].length)), 1,
      );
      // labels are at most as long as the longest; characters of some scripts are twice as wide as others
      const stacked = columns.some((column) => kit.upright(kit.short(R.label(entry.keys, column))));
      const [left, top] = [24 + long(entry.queries, rows) * 9, 24 + long(entry.keys, columns) * (stacked ? 15 : 9)];
      const room = (picture.parentElement.clientWidth || 700) - left - 80;
      const cell = Math.min(34, Math.max(18, Math.floor(room / columns.length)));
      const [width, height] = [columns.length * cell, rows.length * cell];
      const parts = [
        kit.svg(
          "image",
          { x: left, y: top, width, height, href: raster.toDataURL(), preserveAspectRatio: "none", class: "pixels" },
        ),
      ];
      rows.forEach((row, r) => {
        const y = top + r * cell;
        const chosen = row === query;
        parts.push(
          kit.svg(
            "text",
            {
              x: left - 6, y: y + cell / 2 + 5, class: chosen ? "arc-token query" : "arc-token", "text-anchor": "end",
              onclick: () => R.set({ query: row, pinned: true }),
            },
            kit.short(R.label(entry.queries, row)),
          ),
        );
        if (chosen) parts.push(kit.svg("rect", { x: left, y, width, height: cell, class: "align-band" }));
        columns.forEach((column, c) => {
          if (cells[r][column] === cells[r][column]) return;
          const [cx, cy] = [left + (c + 0.5) * cell, y + cell / 2];
          parts.push(kit.svg("path", { d: `M${cx - 4},${cy - 4} l8,8 m0,-8 l-8,8`, class: "align-unknown" }));
        });
        // the strongest key of each row carries a dot: the path of the alignment is seen without its colours
        let best = 0;
        columns.forEach((column, c) => (best = cells[r][column] > cells[r][columns[best]] ? c : best));
        if (cells[r][columns[best]] > 0) {
          const share = kit.stretch(cells[r][columns[best]]);
          parts.push(kit.svg("circle", { cx: left + (best + 0.5) * cell, cy: y + cell / 2, r: 3, fill: kit.ink(share) }));
        }
      });
      columns.forEach((column, c) => {
        const word = kit.short(R.label(entry.keys, column));
        const x = left + (c + 0.5) * cell + (kit.upright(word) ? 0 : 3);
        parts.push(kit.lean(kit.svg("text", { x, y: top - 8, class: "arc-token" }, word), -60));
      });
      parts.push(
        kit.svg("rect", {
          x: left, y: top, width, height, class: "align-hit",
          onpointermove: (event) => {
            const box = event.target.getBoundingClientRect();
            const nth = (list, share) => list[Math.min(list.length - 1, Math.max(0, Math.floor(share * list.length)))];
            const row = nth(rows, (event.clientY - box.top) / box.height);
            const column = nth(columns, (event.clientX - box.left) / box.width);
            if (row === R.state.query && column === R.state.key) return;
            R.hover(row, column);
          },
          onclick: () => R.set({ pinned: !R.state.pinned }),
        }),
      );
      picture.setAttribute("viewBox", `0 0 ${left + width + 90} ${top + height + 8}`);
      picture.setAttribute("width", left + width + 90);
      picture.setAttribute("height", top + height + 8);
      picture.setAttribute("aria-label", R.t("align.label", { n: rows.length, m: columns.length, name: R.name(entry) }));
      picture.replaceChildren(...parts);
      R.legend(legend, R.norm(1, R.state.log, 2), "sequential", 240);
    }

    function paint(found) {
      const { entry } = found;
      body.hidden = Boolean(found.none);
      if (found.none) {
        summary.textContent = R.t("row.none");
        broken.hidden = true;
        return;
      }
      R.write(titles[0], "text.queries", { name: kit.name(entry.queries) });
      R.write(titles[1], "text.keys", { name: kit.name(entry.keys) });
      list(targets, entry.queries, found.rows, null, found.query, (k) => R.set({ query: k, pinned: true }));
      list(sources, entry.keys, found.columns, found.own, R.state.key, (k) => R.set({ key: k }));
      map(found);
      summary.textContent = kit.summary(entry, found.query, R.top(found.own, 5), kit.broken(found.own));
      const lost = entry.n - kept(entry.queries).length + (entry.m - kept(entry.keys).length);
      broken.hidden = !found.cells.some(kit.broken) && !kit.broken(found.own);
      const dropped = mode.drop ? R.t("align.dropped", { n: lost }) + " " : "";
      note.textContent = dropped + (broken.hidden ? kit.kindNote(entry) : "");
    }

    function turn(key, field, count) {
      const step = (by) => () => {
        mode[field] = Math.max(0, Math.min(Math.floor((count - 1) / ROWS) * ROWS, mode[field] + by));
        show(R.state, { page: true });
      };
      const words = R.t(key, { from: mode[field] + 1, to: Math.min(count, mode[field] + ROWS), n: count });
      return R.el(
        "span", { class: "row" }, kit.press("page.previous", step(-ROWS)), R.el("span", { class: "quiet" }, words),
        kit.press("page.next", step(ROWS)),
      );
    }

    function show(state, patch) {
      const entry = R.entry(state.entry);
      const cross = aligns(entry);
      other.hidden = cross;
      body.hidden = !cross;
      note.hidden = !cross;
      pages.hidden = !cross;
      if (!cross && (patch.view || !Object.keys(patch).length)) {
        // this tab is about two texts: who opens it wants to see them
        queueMicrotask(choose);
        return;
      }
      if (!cross) {
        broken.hidden = true;
        summary.textContent = R.t("align.notCross");
        return;
      }
      const [rows, columns] = [kept(entry.queries), kept(entry.keys)];
      const at = rows.indexOf(state.query);
      if (at >= 0 && !patch.page) mode.row = Math.floor(at / ROWS) * ROWS;
      mode.row = Math.min(mode.row, Math.floor((rows.length - 1) / ROWS) * ROWS);
      const spot = columns.indexOf(state.key);
      if (spot >= 0 && !patch.page) mode.column = Math.floor(spot / ROWS) * ROWS;
      mode.column = Math.min(mode.column, Math.floor((columns.length - 1) / ROWS) * ROWS);
      const turns = [];
      if (rows.length > ROWS) turns.push(turn("align.rows", "row", rows.length));
      if (columns.length > ROWS) turns.push(turn("align.columns", "column", columns.length));
      pages.replaceChildren(...turns);
      const query = Math.min(state.query, entry.n - 1);
      draw(
        collect(entry, rows.slice(mode.row, mode.row + ROWS), columns.slice(mode.column, mode.column + ROWS), query), paint,
      );
    }
    return { show };
  });
})();
