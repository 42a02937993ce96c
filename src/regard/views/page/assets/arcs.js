// Arcs: the strongest links of a stretch of tokens, from the top-k of each query. One line of tokens where a text attends to
// itself, two columns where it attends to another or to itself shifted.
(() => {
  const kit = R.kit;
  const LINES = 200;
  const SPAN = { one: 90, two: 60 }; // tokens with a label at once: more cannot be read
  const SPACE = "http://www.w3.org/2000/svg";

  // SVG elements as R.el makes HTML ones: attributes as plain values, text as text
  kit.svg = (tag, attributes = {}, ...children) => {
    const element = document.createElementNS(SPACE, tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  kit.short = (text, most = 14) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);

  // a label that leans by some degrees from its place; signs that are read upright are stacked there, up or down
  kit.lean = (text, degrees) => {
    const [x, y] = [Number(text.getAttribute("x")), Number(text.getAttribute("y"))];
    const word = text.firstChild.data;
    // where signs are stacked, the mark of a space says nothing
    const signs = [...(word.replace(/^·+|·+$/g, "") || word)];
    if (!kit.upright(word)) {
      text.setAttribute("transform", `rotate(${degrees} ${x} ${y})`);
      return text;
    }
    const first = degrees > 0 ? y : y - 15 * (signs.length - 1);
    const stack = kit.svg("tspan", {}, ...signs.map((sign, k) => kit.svg("tspan", { x, y: first + 15 * k }, sign)));
    text.firstChild.replaceWith(stack);
    text.setAttribute("text-anchor", "middle");
    return text;
  };
  kit.leant = (text) => text.firstChild.nodeType === Node.ELEMENT_NODE;

  // the largest weights of a query as they are: from the lists in the file where it has them, else from the whole row
  kit.listed = async (entry, query) => {
    if (entry.blobs.top_keys === undefined) {
      const row = await R.row(entry.id, query);
      return row ? R.top(row, 16) : [];
    }
    const [keys, weights] = await Promise.all([R.blob(entry.blobs.top_keys), R.blob(entry.blobs.top_weights)]);
    const count = R.shape(entry.blobs.top_keys)[1];
    const tops = [];
    for (let k = query * count; k < (query + 1) * count; k += 1) if (keys[k] >= 0) tops.push([keys[k], weights[k]]);
    return tops;
  };
  // the same as shown, kept: a step to the next query asks for almost the same ones again
  const kept = new Map();
  kit.tops = (entry, query) => {
    const name = [entry.id, query, R.state.sinks].join();
    if (kept.size > 4000) kept.clear();
    if (!kept.has(name)) kept.set(name, R.state.sinks ? R.topOf(entry.id, query, 16) : kit.listed(entry, query));
    return kept.get(name);
  };

  kit.view("arcs", "view.arcs", (place) => {
    const mode = { least: 0.05, all: true };
    const draw = kit.latest();
    const note = R.el("p", { class: "note", id: "arcs-note" });
    const readout = R.el("p", { class: "readout", id: "arcs-readout" });
    const broken = kit.warning("arcs-broken");
    const picture = kit.svg("svg", { class: "arcs", id: "arcs-picture", role: "img" });
    const again = () => show(R.state);
    const all = kit.check("arcs-all", "arcs.all", mode.all, (on) => {
      mode.all = on;
      again();
    });
    place.append(
      R.el(
        "div",
        { class: "row controls", role: "group", "aria-label": R.t("controls") },
        kit.slider("arcs-least", "arcs.least", [0, 1, 0.01], mode.least, (value) => {
          mode.least = value;
          again();
        }),
        all,
      ),
      readout,
      broken,
      R.el("div", { class: "scroll picture", tabindex: "0", role: "region", "aria-label": R.t("view.arcs") }, picture),
      note,
    );

    const stretch = (centre, count, most) => {
      const from = Math.max(0, Math.min(count - most, centre - Math.floor(most / 2)));
      return [from, Math.min(count, from + most)];
    };

    // top-k of every query of the stretch, and where each of its keys lies
    async function collect(state) {
      const entry = R.entry(state.entry);
      if (R.rowKind(entry.id) === "none") return { entry, links: null };
      const most = kit.apart(entry) ? SPAN.two : SPAN.one;
      const rows = stretch(state.query, entry.n, most);
      const asked = mode.all ? Array.from({ length: rows[1] - rows[0] }, (_, k) => rows[0] + k) : [state.query];
      const tops = await Promise.all(asked.map((query) => kit.tops(entry, query)));
      let columns = rows;
      if (kit.apart(entry)) {
        const own = tops[asked.indexOf(state.query)] || [];
        columns = stretch(own.length ? own[0][0] : state.query, entry.m, most);
      }
      let outside = 0;
      const links = [];
      asked.forEach((query, k) => {
        for (const [key, weight] of tops[k]) {
          if (!(weight > 0) || weight < mode.least) continue;
          if (key < columns[0] || key >= columns[1]) outside += 1;
          else links.push({ query, key, weight });
        }
      });
      links.sort((a, b) => b.weight - a.weight);
      const own = asked.indexOf(state.query) >= 0 ? tops[asked.indexOf(state.query)] : [];
      const row = await R.row(entry.id, state.query);
      const found = { entry, rows, columns, links: links.slice(0, LINES), left: Math.max(0, links.length - LINES), outside };
      return { ...found, own, broken: kit.broken(row) };
    }

    const token = (side, k, x, y, attributes) => {
      const text = kit.svg(
        "text", { x, y, class: "arc-token", "data-index": k, ...attributes }, kit.short(R.label(side, k)),
      );
      text.append(kit.svg("title", {}, kit.isolate(R.label(side, k)) + " · " + k));
      return text;
    };
    const light = (query) => {
      for (const path of picture.querySelectorAll(".arc")) {
        path.classList.toggle("faint", query >= 0 && Number(path.dataset.query) !== query);
      }
    };
    const pickable = (query, entry) => ({
      onclick: () => R.set({ query, pinned: true }),
      onpointerenter: () => {
        light(query);
        R.shown(entry.id, query).then(({ row }) => {
          readout.textContent = kit.summary(entry, query, row ? R.top(row, 5) : [], kit.broken(row));
        });
      },
      onpointerleave: () => light(-1),
    });

    function link({ query, key, weight }, shape, entry) {
      const chosen = query === R.state.query;
      const path = kit.svg("path", {
        d: shape,
        class: chosen ? "arc chosen" : "arc",
        "data-query": query,
        "data-key": key,
        "stroke-width": (0.6 + 6 * weight).toFixed(2),
        onpointerenter: () => {
          path.classList.add("lit");
          const words = {
            query: kit.quote(entry.queries, query), key: kit.quote(entry.keys, key), weight: R.number(weight), index: key,
          };
          readout.textContent = R.t("text.read", words);
        },
        onpointerleave: () => path.classList.remove("lit"),
        onclick: () => R.set({ query, key, pinned: true }),
      });
      path.style.stroke = chosen ? R.css("--warm") : R.css("--accent");
      path.style.strokeOpacity = chosen ? 0.45 + 0.55 * weight : 0.2 + 0.6 * weight;
      path.append(kit.svg(
        "title", {},
        kit.isolate(R.label(entry.queries, query)) + " → " + kit.isolate(R.label(entry.keys, key)) + ": " + R.number(weight),
      ));
      return path;
    }

    function oneLine({ entry, rows, links }) {
      const count = rows[1] - rows[0];
      // few tokens take the room there is
      const step = Math.min(66, Math.max(21, Math.floor(((picture.parentElement.clientWidth || 900) - 110) / count)));
      const x = (k) => 24 + (k - rows[0]) * step;
      const far = links.reduce((most, { query, key }) => Math.max(most, Math.abs(query - key)), 1);
      const rise = Math.min(300, 30 + far * step * 0.5);
      const base = rise + 16;
      const paths = links.map((one) => {
        const [a, b] = [x(one.query), x(one.key)];
        if (one.query === one.key) return link(one, `M${a - 5},${base} c-9,-26 19,-26 10,0`, entry);
        // higher where farther, and never cut off at the top
        const top = base - (16 + (rise - 16) * (Math.abs(one.query - one.key) / far) ** 0.7) * 1.3;
        return link(one, `M${a},${base} C${a},${top} ${b},${top} ${b},${base}`, entry);
      });
      const labels = [];
      for (let k = rows[0]; k < rows[1]; k += 1) {
        const mark = k === R.state.query ? "arc-token query" : kit.special(entry.keys, k) ? "arc-token special" : "arc-token";
        labels.push(kit.lean(
          token(entry.keys, k, x(k) - 3, base + 16, { class: mark, ...pickable(k, entry) }), 60,
        ));
      }
      const long = labels.reduce((most, text) => Math.max(most, [...text.firstChild.textContent].length), 1);
      return [80 + count * step, base + 34 + Math.min(14, long) * (labels.some(kit.leant) ? 15 : 7.5), paths, labels];
    }

    function twoColumns({ entry, rows, columns, links }) {
      const step = 22;
      const tall = Math.max(rows[1] - rows[0], columns[1] - columns[0]);
      const gap = (span) => ((tall - (span[1] - span[0])) * step) / 2;
      const y = (k, span) => 52 + gap(span) + (k - span[0]) * step;
      // both columns are seen in a narrow window too
      const wide = Math.max(340, Math.min(720, (picture.parentElement.clientWidth || 720) - 16));
      const near = Math.max(110, (190 / 720) * wide);
      const far = wide - near;
      const bend = (far - near) * 0.44;
      const paths = links.map((one) => {
        const [a, b] = [y(one.query, rows) - 4, y(one.key, columns) - 4];
        return link(one, `M${near},${a} C${near + bend},${a} ${far - bend},${b} ${far},${b}`, entry);
      });
      const title = (side, x, anchor) => kit.svg(
        "text", { x, y: 22, class: "arc-title", "text-anchor": anchor }, kit.name(side),
      );
      // a name may be longer than its tokens
      const left = wide < 720 ? [0, "start"] : [near - 8, "end"];
      const labels = [title(entry.queries, ...left), title(entry.keys, far + 8, "start")];
      for (let k = rows[0]; k < rows[1]; k += 1) {
        const mark = k === R.state.query ? "arc-token query" : "arc-token";
        labels.push(token(
          entry.queries, k, near - 8, y(k, rows), { class: mark, "text-anchor": "end", ...pickable(k, entry) },
        ));
      }
      for (let k = columns[0]; k < columns[1]; k += 1) {
        labels.push(token(
          entry.keys, k, far + 8, y(k, columns), kit.special(entry.keys, k) ? { class: "arc-token special" } : {},
        ));
      }
      return [wide, 70 + tall * step, paths, labels];
    }

    function paint(found) {
      const { entry, links } = found;
      if (!links) {
        picture.replaceChildren();
        readout.textContent = R.t("row.none");
        note.textContent = "";
        broken.hidden = true;
        return;
      }
      const [width, height, paths, labels] = kit.apart(entry) ? twoColumns(found) : oneLine(found);
      picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
      picture.setAttribute("width", width);
      picture.setAttribute("height", height);
      picture.setAttribute("aria-label", R.t("arcs.label", { n: links.length, name: R.name(entry) }));
      // the chosen query's links lie on top
      picture.replaceChildren(
        ...paths.sort((a, b) => a.classList.contains("chosen") - b.classList.contains("chosen")), ...labels,
      );
      const said = found.own.length || found.broken;
      readout.textContent = said ? kit.summary(entry, R.state.query, found.own, found.broken) : "";
      broken.hidden = !found.broken;
      const words = {
        n: links.length, from: found.rows[0], to: found.rows[1] - 1, left: found.left, outside: found.outside,
      };
      note.textContent = R.t("arcs.note", words) + (R.state.sinks ? " " + R.t("sinks.note") : "");
      const scroller = picture.parentElement;
      const mark = picture.querySelector(".query");
      if (mark && !kit.apart(entry)) {
        const at = Number(mark.getAttribute("x"));
        const from = at - scroller.scrollLeft;
        if (from < 40 || from > scroller.clientWidth - 40) scroller.scrollLeft = at - scroller.clientWidth / 2;
      }
    }

    function show(state) {
      all.hidden = R.pools(R.entry(state.entry));
      draw(collect(state), paint);
    }
    return { show };
  });
})();
