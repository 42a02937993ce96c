// Tables: all that the pictures say, as numbers that any reader can reach.
(() => {
  const kit = R.kit;
  const PAGE = 50;

  const print = (cell) => (typeof cell === "number" && !Number.isInteger(cell) ? R.number(cell) : String(cell ?? "NaN"));

  // a real table; the first cell of each row is its head
  kit.table = ({ id, caption, heads, rows, sort = -1, down = true, onsort = null, marked = -1, pick = null, columns = [] }) => {
    const head = heads.map((name, k) => {
      const cell = R.el("th", { scope: "col", class: rows.length && typeof rows[0][k] === "number" ? "number" : null });
      const term = (columns[k] || "").replace("column.", "");
      if (!onsort) {
        cell.append(R.terms.includes(term) ? R.term(name, term) : name);
        return cell;
      }
      const arrow = k === sort ? (down ? " ▼" : " ▲") : "";
      cell.setAttribute("aria-sort", k === sort ? (down ? "descending" : "ascending") : "none");
      const sorter = R.el("button", { class: "sorter", type: "button", onclick: () => onsort(k) }, name + arrow);
      cell.append(R.terms.includes(term) ? R.explain(sorter, term) : sorter);
      return cell;
    });
    const body = rows.map((cells, r) => {
      const line = R.el("tr", { class: r === marked ? "chosen" : null });
      cells.forEach((cell, k) => {
        // a number that is none came without a value
        const number = typeof cell === "number" || cell === null;
        const box = R.el(
          k ? "td" : "th", { scope: k ? null : "row", dir: number ? null : "auto", class: number ? "number" : null },
        );
        if (k === 0 && pick) box.append(R.el(
          "button", { class: "sorter", type: "button", onclick: () => pick(r) }, print(cell),
        ));
        else box.textContent = print(cell);
        line.append(box);
      });
      return line;
    });
    const table = R.el(
      "table", { id }, R.el("caption", {}, caption), R.el("thead", {}, R.el("tr", {}, ...head)), R.el("tbody", {}, ...body),
    );
    return R.el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, table);
  };

  kit.pager = (page, pages, turn) => {
    if (pages < 2) return R.el("span", {});
    const back = kit.press("page.previous", () => turn(page - 1));
    const on = kit.press("page.next", () => turn(page + 1));
    back.disabled = page === 0;
    on.disabled = page === pages - 1;
    return R.el(
      "div", { class: "row pager" }, back, R.el("span", { class: "quiet" }, R.t("page.of", { page: page + 1, pages })), on,
    );
  };

  // statistics of each head, as the table shows and the export writes them
  kit.headRows = () => {
    const two = R.data.models.length > 1;
    const names = [
      "column.module", "column.layer", "column.head", "column.entropy", "column.first", "column.local", "column.distance",
      "column.received",
    ];
    const columns = two ? ["column.model", ...names] : names;
    const heads = columns.map((key) => R.t(key));
    const rows = R.data.entries.map((entry) => {
      const { entropy, first, local, distance, received } = entry.stats;
      const cells = [entry.name, entry.layer, entry.head, entropy, first, local, distance, received];
      return { entry, cells: two ? [R.data.models[entry.model], ...cells] : cells };
    });
    return { heads, rows, columns };
  };

  // statistics of each query; missing columns are those that the file does not hold
  kit.queryRows = async (entry, from, to, tell = null) => {
    const names = ["entropy", "peak", "first"].filter((name) => entry.blobs[name] !== undefined);
    const stats = await Promise.all(names.map((name) => R.blob(entry.blobs[name])));
    const rows = [];
    for (let k = from; k < to; k += 1) {
      const [best] = await kit.listed(entry, k);
      if (tell) await tell(k);
      const top = best ? [R.label(entry.keys, best[0]), best[0], best[1]] : ["", "", ""];
      rows.push([k, R.label(entry.queries, k), ...stats.map((values) => values[k]), ...top]);
    }
    const columns = [
      "column.position", "column.token", ...names.map((name) => "column." + name), "column.strongest", "column.key",
      "column.weight",
    ];
    return { heads: columns.map((key) => R.t(key)), rows, columns };
  };

  kit.view("table", "view.table", (place) => {
    const mode = { sort: -1, down: false, heads: 0, queries: -1 };
    // a table that is made again keeps the keyboard where it was
    const swap = (section, ...children) => {
      const inside = section.contains(document.activeElement);
      section.replaceChildren(...children);
      if (inside) (section.querySelector(".chosen .sorter") || section.querySelector("button, [tabindex]"))?.focus();
    };
    const [drawTop, drawQueries] = [kit.latest(), kit.latest()];
    const top = R.el("section", {});
    const queries = R.el("section", { id: "table-query-part" });
    const heads = R.el("section", {});
    place.append(R.el("div", { class: "tables" }, top, queries), heads);

    function showTop(state) {
      const entry = R.entry(state.entry);
      drawTop(R.shown(entry.id, state.query), ({ row }) => {
        const tops = row ? R.top(row, 32) : [];
        const caption = R.t(
          R.about(entry, "table.top"), { token: kit.quote(entry.queries, state.query), index: state.query, name: R.name(entry) },
        );
        if (R.rowKind(entry.id) === "none") return swap(top, R.el("p", { id: "table-note" }, R.t("row.none")));
        const warning = kit.warning("table-broken");
        warning.hidden = !kit.broken(row);
        swap(top,
          warning,
          kit.table({
            id: "table-top",
            caption,
            heads: ["column.rank", "column.token", "column.position", "column.weight"].map((key) => R.t(key)),
            rows: tops.map(([key, weight], rank) => [rank + 1, R.label(entry.keys, key), key, weight]),
          }),
          R.el("p", { class: "note", id: "table-note" }, kit.broken(row) ? "" : kit.kindNote(entry)),
        );
      });
    }

    function showQueries(state) {
      const entry = R.entry(state.entry);
      // a head of the overview alone has nothing to say of its queries; a pooling has one, whose row stands beside
      if (R.rowKind(entry.id) === "none" || R.pools(entry)) return drawQueries(Promise.resolve(), () => swap(queries));
      const pages = Math.ceil(entry.n / PAGE);
      const page = mode.queries < 0 ? Math.floor(state.query / PAGE) : Math.min(mode.queries, pages - 1);
      const from = page * PAGE;
      drawQueries(kit.queryRows(entry, from, Math.min(entry.n, from + PAGE)), (found) => {
        swap(queries,
          kit.table({
            id: "table-queries",
            caption: R.t("table.queries", { name: R.name(entry) }),
            heads: found.heads,
            columns: found.columns,
            rows: found.rows,
            marked: state.query - from,
            pick: (row) => R.set({ query: from + row, pinned: true }),
          }),
          kit.pager(page, pages, (next) => {
            mode.queries = next;
            showQueries(R.state);
          }),
        );
      });
    }

    function showHeads() {
      const found = kit.headRows();
      const rows = found.rows.slice();
      if (mode.sort >= 0) {
        const sign = mode.down ? -1 : 1;
        rows.sort(({ cells: a }, { cells: b }) => {
          const [x, y] = [a[mode.sort], b[mode.sort]];
          return sign * (typeof x === "string" ? x.localeCompare(y) : (x ?? -Infinity) - (y ?? -Infinity));
        });
      }
      const pages = Math.ceil(rows.length / PAGE);
      const some = rows.slice(mode.heads * PAGE, (mode.heads + 1) * PAGE);
      swap(heads,
        kit.table({
          id: "table-heads",
          caption: R.t(R.data.entries.every(R.pools) ? "table.heads.pooled" : "table.heads"),
          heads: found.heads,
          columns: found.columns,
          rows: some.map(({ cells }) => cells),
          sort: mode.sort,
          down: mode.down,
          marked: some.findIndex(({ entry }) => entry.id === R.state.entry),
          pick: (row) => R.set({ entry: some[row].entry.id }),
          onsort: (column) => {
            mode.down = mode.sort === column ? !mode.down : false;
            mode.sort = column;
            mode.heads = 0;
            showHeads();
            heads.querySelectorAll("th .sorter")[column].focus();
          },
        }),
        kit.pager(mode.heads, pages, (next) => {
          mode.heads = next;
          showHeads();
        }),
      );
    }

    let before = "";
    function show(state, patch) {
      if ("query" in patch || "entry" in patch) mode.queries = -1;
      showTop(state);
      const now = [state.entry, state.query, state.sinks, state.lang].join();
      if (now !== before) {
        before = now;
        showQueries(state);
        showHeads();
      }
    }
    return { show };
  });
})();
