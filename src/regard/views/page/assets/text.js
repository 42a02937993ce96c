// The text: choose a query and every key is shaded by its weight; without a query, keys are shaded by what they receive.
(() => {
  const kit = R.kit;
  const LEAST = 0.03; // below this share of the strongest key a token stays plain: a page of dark cells says nothing

  kit.view("text", "view.text", (place) => {
    const mode = { words: false, received: false };
    const draw = kit.latest();
    let shape = "";
    let current = null; // {entry, query, weights per token, most, note}

    const head = R.el("p", { class: "row-summary", id: "text-summary" });
    const note = R.el("p", { class: "note", id: "text-note" });
    const broken = kit.warning("text-broken", "row.nanMark");
    const readout = R.el("p", { class: "readout", id: "text-readout" });
    const jump = R.el("input", { type: "number", id: "text-jump", class: "short" });
    jump.min = 0;
    jump.addEventListener("change", () => {
      const entry = R.entry(R.state.entry);
      const to = Math.min(entry.n - 1, Math.max(0, Math.floor(Number(jump.value)) || 0));
      mode.received = false;
      sync();
      R.set({ query: to, pinned: true });
      queries.reveal(to);
    });
    const words = kit.check("text-words", "text.words", false, (on) => {
      mode.words = on;
      shape = "";
      show(R.state, {});
    });
    const received = kit.check("text-received", "text.received", false, (on) => {
      mode.received = on;
      show(R.state, {});
    });
    const sync = () => {
      received.querySelector("input").checked = mode.received;
    };

    // while a query is pinned, pointing at a token reads the number of that key; else it chooses the query
    const choose = (item) => {
      mode.received = false;
      sync();
      const same = R.state.pinned && R.state.query === item.from;
      R.set({ query: item.from, key: -1, pinned: !same });
    };
    const point = (item) => {
      if (R.state.pinned || mode.received) read(item.from);
      else R.hover(item.from, -1);
    };
    const readKey = (item) => {
      R.set({ key: item.from });
      read(item.from);
    };
    const queries = kit.flow({ id: "text-queries", share: 0.5, pick: choose, hover: point });
    const keys = kit.flow({ id: "text-keys", share: 0.5, pick: readKey, hover: (item) => read(item.from) });
    const both = kit.flow({ id: "text-tokens", pick: choose, hover: point });
    const titles = [R.el("h3", { class: "flow-title" }), R.el("h3", { class: "flow-title" })];
    const seek = R.el("label", { class: "control" }, R.el("span", {}, R.t("text.jump")), jump);
    const strong = R.el("ol", { class: "strongest", id: "text-strongest" });
    const blocks = R.el("div", { class: "flows" });
    const bar = R.el("canvas", { class: "scale", role: "img", "aria-label": R.t("text.scale") });
    place.append(
      R.el(
        "div",
        { class: "row controls", role: "group", "aria-label": R.t("controls") },
        kit.press("text.search", () => kit.search(), { id: "text-search" }),
        seek,
        words,
        received,
      ),
      head,
      broken,
      blocks,
      readout,
      R.el("div", { class: "row legend" }, scale(), strong),
      note,
    );

    function colourScale() {
      const pen = R.canvas(bar, 120, 10);
      pen.fillStyle = R.css("--panel");
      pen.fillRect(0, 0, 120, 10);
      for (let x = 0; x < 120; x += 1) {
        pen.fillStyle = kit.shade(x / 119).fill;
        pen.fillRect(x, 0, 1, 10);
      }
    }
    function scale() {
      return R.el(
        "span", { class: "row scale-row" }, R.el("span", { class: "quiet", id: "text-least" }), bar,
        R.el("span", { class: "quiet", id: "text-most" }),
      );
    }

    const weightOf = (item) => {
      let sum = 0;
      for (let k = item.from; k < item.to; k += 1) sum += current.weights[k] ?? 0;
      return sum;
    };

    function read(key) {
      if (!current || !current.weights) return;
      const flow = kit.apart(current.entry) ? keys : both;
      const item = flow.item(key);
      if (!item) return;
      const words = { key: kit.quoted(item.bare), index: item.from, weight: R.number(weightOf(item)) };
      const query = current.received ? "" : kit.quote(current.entry.queries, current.query);
      readout.textContent = R.t(current.received ? "text.readReceived" : R.about(current.entry, "text.read"), { ...words, query });
    }

    // a word as query is the mean of its tokens' rows; a word as key is the sum of its tokens' weights
    async function weigh(entry, item) {
      const rows = await Promise.all(Array.from(
        { length: item.to - item.from }, (_, k) => R.shown(entry.id, item.from + k),
      ));
      if (!rows[0] || !rows[0].row) return null;
      if (rows.length === 1) return rows[0].row;
      const mean = new Float32Array(entry.m);
      for (const { row } of rows) row.forEach((weight, k) => (mean[k] += weight / rows.length));
      return mean;
    }

    async function facts(state) {
      const entry = R.entry(state.entry);
      const flow = kit.apart(entry) ? queries : both;
      const item = flow.item(state.query) || { from: 0, to: 1 };
      const weights = mode.received ? await kit.received(entry) : await weigh(entry, item);
      return { entry, query: item.from, item, received: mode.received, weights };
    }

    function arrange(entry) {
      const now = [kit.apart(entry), entry.queries, entry.keys, mode.words].join();
      if (now === shape) return;
      shape = now;
      const cross = kit.apart(entry);
      const singles = (side) => (mode.words ? kit.words(side) : kit.side(side).labels.map((_, k) => [k, k + 1]));
      // one query has no row to choose, and all that keys receive is its own
      seek.hidden = received.hidden = R.pools(entry);
      R.write(titles[0], R.about(entry, "text.queries"), { name: kit.name(entry.queries) });
      R.write(titles[1], R.about(entry, "text.keys"), { name: kit.name(entry.keys) });
      blocks.replaceChildren(...(cross ? [titles[0], queries.element, titles[1], keys.element] : [both.element]));
      if (cross) {
        queries.set(entry.queries, singles(entry.queries), titles[0].textContent);
        keys.set(entry.keys, singles(entry.keys), titles[1].textContent);
      } else both.set(entry.queries, singles(entry.queries), R.t("text.tokens"));
      const joined = kit.side(entry.queries).joined || kit.side(entry.keys).joined;
      words.querySelector("input").disabled = !joined;
      words.title = joined ? "" : R.t("text.notJoined");
    }

    function shade(found) {
      current = found;
      const { entry, weights } = found;
      const cross = kit.apart(entry);
      const flow = cross ? keys : both;
      const sums = weights && mode.words ? Float32Array.from(flow.items(), weightOf) : weights;
      const most = sums ? kit.largest(sums) || 1 : 1;
      const hidden = (item) => R.state.sinks && (item.from === 0 || kit.special(entry.keys, item.from));
      const chosen = (item) => !found.received && item.from <= found.query && found.query < item.to;
      const sought = (side, item) => {
        const tokens = kit.found(side);
        for (let k = item.from; k < item.to; k += 1) if (tokens.has(k)) return true;
        return false;
      };
      const marks = (side, item, key) =>
        [
          chosen(item) && !(cross && key) ? "query" : "",
          kit.special(side, item.from) ? "special" : "",
          key && hidden(item) ? "dropped" : "",
          sought(side, item) ? "found" : "",
          key && R.state.key >= item.from && R.state.key < item.to ? "cursor" : "",
        ]
          .filter(Boolean)
          .join(" ");
      flow.paint((k, item) => {
        const look = { marks: marks(entry.keys, item, true), chosen: !cross && chosen(item), title: String(item.from) };
        if (!sums || hidden(item)) return look;
        if (sums[k] !== sums[k]) return { ...look, marks: look.marks + " unknown", title: item.from + ": NaN" };
        const share = kit.stretch(sums[k] / most);
        look.title = item.from + ": " + R.number(sums[k]);
        // the bar is always linear, whatever the colours are
        look.share = kit.bar(sums[k] / most);
        if (share >= LEAST) Object.assign(look, kit.shade(share));
        return look;
      });
      if (cross) {
        queries.paint((_, item) => ({
          marks: marks(entry.queries, item, false), chosen: chosen(item), title: String(item.from),
        }));
      }
      const tops = sums ? R.top(sums, 8).map(([k, weight]) => [flow.items()[k], weight]) : [];
      strong.replaceChildren(
        ...tops.filter(([, weight]) => weight > 0).map(([item, weight]) => R.el(
          "li", { class: "chip" }, R.el("bdi", {}, item.text), " " + R.number(weight),
        )),
      );
      colourScale();
      place.querySelector("#text-most").textContent = R.number(most);
      place.querySelector("#text-least").textContent = kit.lowest(most);
      head.textContent = !weights
        ? R.t("row.none")
        : found.received
          ? R.t("text.receivedHead", { n: entry.n })
          : R.t(
            R.about(entry, "text.head"),
            { token: kit.quoted((cross ? queries : both).item(found.query).bare), index: found.query, name: R.name(entry) },
          );
      place.querySelector(".legend").hidden = !weights || !kit.largest(sums);
      broken.hidden = !kit.broken(sums);
      const kind = found.received ? R.t("text.receivedNote") : kit.kindNote(entry);
      note.textContent = weights && broken.hidden ? kind : "";
    }

    const hint = ({ received: all, entry }) =>
      all ? "text.hintReceived" : R.state.pinned && !R.pools(entry) ? "text.hintPinned" : R.about(entry, "text.hint");

    function show(state, patch) {
      const entry = R.entry(state.entry);
      arrange(entry);
      jump.max = entry.n - 1;
      if (document.activeElement !== jump) jump.value = state.query;
      // what the pointer chooses is already in sight; what a key, a search or a link chooses is brought there
      const flow = kit.apart(entry) ? queries : both;
      if (!("query" in patch) || !flow.element.matches(":hover")) flow.reveal(state.query);
      if ("query" in patch && patch.pinned !== undefined && mode.received) {
        mode.received = false;
        sync();
      }
      if ("key" in patch && state.key >= 0) {
        const other = kit.apart(entry) ? keys : both;
        if (!other.element.matches(":hover")) other.reveal(state.key);
      }
      draw(facts(state), (found) => {
        shade(found);
        if (state.key >= 0) read(state.key);
        else readout.textContent = R.t(hint(found));
      });
    }
    const leave = () => [queries, keys, both].forEach((flow) => flow.leave());
    return { show, leave };
  });
})();
