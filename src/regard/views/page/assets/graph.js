// A graph: nodes on a circle or where they were put, edges as wide as their weight, arrows to the node that attends.
(() => {
  const kit = R.kit;
  const graph = R.data.graph;
  if (!graph) return;
  const EDGES = 2000; // drawn at most; the table has them all
  const PAGE = 50;
  const [WIDTH, HEIGHT, EDGE] = [760, 560, 56];

  // given places are brought into the frame with one scale for both directions, so that shapes stay shapes
  function places() {
    const count = graph.nodes.length;
    if (!graph.at) {
      const round = (k) => (2 * Math.PI * k) / Math.max(count, 1) - Math.PI / 2;
      const reach = HEIGHT / 2 - EDGE;
      return graph.nodes.map((_, k) => [WIDTH / 2 + reach * Math.cos(round(k)), HEIGHT / 2 + reach * Math.sin(round(k))]);
    }
    const bounds = [0, 1].map((axis) => {
      const values = graph.at.map((point) => point[axis]);
      return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
    });
    const spans = bounds.map(([low, high]) => high - low || 1);
    const scale = Math.min((WIDTH - 2 * EDGE) / spans[0], (HEIGHT - 2 * EDGE) / spans[1]);
    const middle = bounds.map(([low, high]) => (low + high) / 2);
    return graph.at.map(([x, y]) => [WIDTH / 2 + (x - middle[0]) * scale, HEIGHT / 2 - (y - middle[1]) * scale]);
  }

  kit.view("graph", "view.graph", (place) => {
    const at = places();
    const node = (k) => kit.plain(graph.nodes[k]) || String(k);
    const size = Math.max(3, Math.min(12, graph.at ? 240 / Math.sqrt(graph.nodes.length) / 3 : 560 / graph.nodes.length));
    const mode = { least: 0, edgePage: 0, loopPage: 0, node: -1 };
    const draw = kit.latest();
    let last = null;
    const readout = R.el("p", { class: "readout", id: "graph-readout" });
    const note = R.el("p", { class: "note", id: "graph-note" });
    const picture = kit.svg(
      "svg", { class: "graph", id: "graph-picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group" },
    );
    picture.setAttribute("aria-label", R.t("graph.label", { n: graph.nodes.length, m: graph.edges.length }));
    const edgeTable = R.el("div", { class: "grow" });
    const loopTable = R.el("div", { class: "grow" });
    place.append(
      R.el(
        "div",
        { class: "row controls", role: "group", "aria-label": R.t("controls") },
        kit.slider("graph-least", "arcs.least", [0, 1, 0.01], 0, (value) => {
          mode.least = value;
          if (last) paint(last);
        }),
      ),
      readout,
      R.el("div", { class: "picture graph-frame" }, picture),
      note,
      R.el("div", { class: "tables" }, edgeTable, loopTable),
    );

    // below a node that was put somewhere, outside of the circle else
    function beside(k) {
      const [x, y] = at[k];
      if (graph.at) return { x, y: y + size + 15, "text-anchor": "middle" };
      const [dx, dy] = [x - WIDTH / 2, y - HEIGHT / 2];
      const out = (size + 8) / (Math.hypot(dx, dy) || 1);
      const anchor = Math.abs(dx) < 12 ? "middle" : dx > 0 ? "start" : "end";
      return { x: x + dx * out, y: y + dy * out + 4, "text-anchor": anchor };
    }
    // weights that the file does not know are NaN: they come last
    const falling = (a, b) => (b.weight === b.weight ? b.weight : -1) - (a.weight === a.weight ? a.weight : -1);
    const print = (weight) => (weight === weight ? R.number(weight) : "?");
    const incoming = (k) => last.edges.filter((edge) => edge.to === k).sort(falling);
    function light(k) {
      if (!last) return;
      mode.node = k;
      for (const path of picture.querySelectorAll(".edge")) {
        path.classList.toggle("faint", k >= 0 && Number(path.dataset.to) !== k);
      }
      for (const dot of picture.querySelectorAll(".node")) dot.classList.toggle("query", Number(dot.dataset.index) === k);
      if (k < 0) {
        readout.textContent = R.t("graph.hint");
        return;
      }
      const list = incoming(k);
      const words = list.slice(0, 8).map((edge) => kit.quoted(node(edge.from)) + " " + print(edge.weight)).join(", ");
      readout.textContent = R.t(
        "graph.incoming", { node: kit.quoted(node(k)), n: list.length, keys: words || R.t("row.nothing") },
      );
    }
    function choose(k) {
      light(k);
      R.announce(readout.textContent);
      const entry = R.entry(R.state.entry);
      if (entry && k < entry.n && entry.n === graph.nodes.length) R.set({ query: k, pinned: true });
    }

    // a bent line, so that an edge and the one back lie apart; it ends at the node's rim, where the arrow is seen
    function shape({ from, to }) {
      const [[x0, y0], [x1, y1]] = [at[from], at[to]];
      const long = Math.hypot(x1 - x0, y1 - y0) || 1;
      const [ux, uy] = [(x1 - x0) / long, (y1 - y0) / long];
      const end = size + 5;
      const bend = Math.min(26, long * 0.12);
      let [mx, my] = [(x0 + x1) / 2 - uy * bend, (y0 + y1) / 2 + ux * bend];
      // on the circle edges bend to its middle, away from the nodes between
      if (!graph.at) [mx, my] = [mx + (WIDTH / 2 - mx) * 0.35, my + (HEIGHT / 2 - my) * 0.35];
      const last = Math.hypot(x1 - mx, y1 - my) || 1;
      const [vx, vy] = [(x1 - mx) / last, (y1 - my) / last];
      const point = (x, y) => x.toFixed(1) + "," + y.toFixed(1);
      return `M${point(x0 + ux * size, y0 + uy * size)} Q${point(mx, my)} ${point(x1 - vx * end, y1 - vy * end)}`;
    }

    function paint(found) {
      last = found;
      if (!found.edges) {
        picture.replaceChildren();
        edgeTable.replaceChildren();
        loopTable.replaceChildren();
        readout.textContent = R.t("graph.none");
        note.textContent = "";
        return;
      }
      const plain = found.edges.filter((edge) => edge.from !== edge.to).sort(falling);
      const loops = found.edges.filter((edge) => edge.from === edge.to).sort(falling);
      // what is not known is neither above nor below a bound
      const strong = plain.filter(({ weight }) => mode.least === 0 || weight >= mode.least).slice(0, EDGES);
      const most = plain.length ? Math.max(plain[0].weight || 0, 1e-12) : 1;
      const tip = kit.svg(
        "marker",
        {
          id: "graph-arrow", viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 9, markerHeight: 9,
          markerUnits: "userSpaceOnUse", orient: "auto",
        },
        kit.svg("path", { d: "M0,0 L10,5 L0,10 z", fill: R.css("--accent") }),
      );
      // among many edges only the strong ones may stand out
      const [bold, faint] = strong.length > 400 ? [3, 0.06] : [6, 0.25];
      const lines = strong.map((edge) => {
        const share = Math.max(0, edge.weight / most || 0);
        const line = kit.svg(
          "path",
          { d: shape(edge), class: "edge", "data-from": edge.from, "data-to": edge.to, "marker-end": "url(#graph-arrow)" },
        );
        line.style.strokeWidth = 0.5 + bold * share;
        line.style.strokeOpacity = faint + (1 - faint) * share;
        line.style.stroke = R.css("--accent");
        line.append(kit.svg("title", {}, node(edge.from) + " → " + node(edge.to) + ": " + print(edge.weight)));
        if (edge.weight !== edge.weight) line.setAttribute("stroke-dasharray", "3 4");
        return line;
      });
      const dots = graph.nodes.map((_, k) => {
        const dot = kit.svg(
          "g",
          {
            class: "node", "data-index": k, role: "button", tabindex: graph.nodes.length <= 120 || k === 0 ? 0 : -1,
            "aria-label": node(k),
          },
        );
        dot.append(kit.svg("circle", { cx: at[k][0], cy: at[k][1], r: size }));
        if (graph.nodes.length <= 60) dot.append(kit.svg(
          "text", { ...beside(k), class: "node-name" }, kit.short(node(k), 12),
        ));
        dot.append(kit.svg("title", {}, node(k)));
        dot.addEventListener("pointerenter", () => light(k));
        dot.addEventListener("pointerleave", () => {
          const inside = document.activeElement && document.activeElement.classList.contains("node");
          light(inside ? mode.node : chosen(R.state));
        });
        dot.addEventListener("focus", () => light(k));
        dot.addEventListener("click", () => choose(k));
        dot.addEventListener("keydown", (event) => {
          const next = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
          if (event.key === "Enter" || event.key === " ") choose(k);
          else if (next && !event.shiftKey) dots[(k + next + dots.length) % dots.length].focus();
          else return;
          event.preventDefault();
        });
        return dot;
      });
      picture.replaceChildren(kit.svg("defs", {}, tip), ...lines.reverse(), ...dots);
      note.textContent = R.t("graph.note", { n: strong.length, m: plain.length, loops: loops.length });
      light(mode.node);
      tables(plain, loops);
    }

    function tables(plain, loops) {
      const list = (caption, id, edges) =>
        kit.table({
          id,
          caption,
          heads: [R.t("graph.from"), R.t("graph.to"), R.t("column.weight")],
          rows: edges.map((edge) => [node(edge.from), node(edge.to), edge.weight === edge.weight ? edge.weight : "?"]),
        });
      const paged = (element, name, caption, id, edges) => {
        const pages = Math.ceil(edges.length / PAGE);
        mode[name] = Math.min(mode[name], Math.max(0, pages - 1));
        const turn = (page) => {
          mode[name] = page;
          tables(plain, loops);
          element.querySelector("[tabindex]").focus();
        };
        element.replaceChildren(
          list(caption, id, edges.slice(mode[name] * PAGE, (mode[name] + 1) * PAGE)), kit.pager(mode[name], pages, turn),
        );
      };
      paged(edgeTable, "edgePage", R.t("graph.edges"), "graph-edges", plain);
      paged(loopTable, "loopPage", R.t("graph.loops"), "graph-loops", loops);
    }

    async function collect(state) {
      const index = (graph.weights || {})[state.entry];
      if (index === undefined || index === null) return { edges: null };
      const weights = await R.blob(index);
      return { edges: graph.edges.map(([from, to], k) => ({ from, to, weight: weights[k] })) };
    }
    // the query's node is lit where a query was chosen: the page always has one, and at first it is the first
    const chosen = (state) => {
      const entry = R.entry(state.entry);
      return entry && entry.n === graph.nodes.length && (state.pinned || state.query > 0) ? state.query : -1;
    };
    let shown = "";
    function show(state, patch) {
      const now = [state.entry, document.documentElement.dataset.theme].join();
      if (now !== shown || "query" in patch || "pinned" in patch) mode.node = chosen(state);
      if (now === shown) return light(mode.node);
      shown = now;
      draw(collect(state), paint);
    }
    return { show };
  });
})();
