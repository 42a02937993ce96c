// Image patches: one query's row laid over the picture; the query is a patch, a special token, or a token of another text.
(() => {
  const kit = R.kit;
  const image = R.data.image;
  if (!image) return;
  const [down, across] = image.grid;
  const skip = image.skip || 0;
  const patches = down * across;
  const shownOn = (count) => count >= skip + patches;

  kit.view("image", "view.image", (place) => {
    const mode = { opacity: 0.65, ranks: true, grey: true };
    const draw = kit.latest();
    const photo = R.el("img", { class: "patch-photo", alt: R.t("image.alt"), id: "image-photo" });
    photo.src = image.png;
    // the colours of a picture would mix with those of the weights
    photo.classList.toggle("grey", mode.grey);
    const layer = R.el("canvas", { class: "patch-layer", id: "image-layer", role: "img", tabindex: "0" });
    const frame = R.el("div", { class: "patch-frame", id: "image-frame" }, photo, layer);
    const readout = R.el("p", { class: "readout", id: "image-readout" });
    const summary = R.el("p", { class: "row-summary", id: "image-summary" });
    const note = R.el("p", { class: "note", id: "image-note" });
    const broken = kit.warning("image-broken", "row.nanMark");
    const others = R.el(
      "div", { class: "row patch-others", id: "image-others", role: "group", "aria-label": R.t("image.others") },
    );
    place.append(
      R.el(
        "div",
        { class: "row controls", role: "group", "aria-label": R.t("controls") },
        kit.slider("image-opacity", "image.opacity", [0, 1, 0.05], mode.opacity, (value) => {
          mode.opacity = value;
          layer.style.opacity = value;
        }),
        kit.check("image-grey", "image.grey", mode.grey, (on) => photo.classList.toggle("grey", on)),
        kit.check("image-ranks", "image.ranks", mode.ranks, (on) => {
          mode.ranks = on;
          if (last) paint(last);
        }),
      ),
      summary,
      broken,
      R.el(
        "div", { class: "patch-body" }, frame, R.el("div", { class: "grow" }, R.el("h3", {}, R.t("image.others")), others),
      ),
      readout,
      note,
    );
    layer.style.opacity = mode.opacity;
    let last = null;

    // the picture keeps its shape and is drawn no larger than the panel
    const size = () => {
      const width = Math.max(
        160, Math.min(560, place.clientWidth - 40 || 560, (image.width / image.height) * window.innerHeight * 0.62),
      );
      return [Math.round(width), Math.round((width * image.height) / image.width)];
    };

    const patchAt = (event) => {
      const box = layer.getBoundingClientRect();
      const column = Math.floor(((event.clientX - box.left) / box.width) * across);
      const row = Math.floor(((event.clientY - box.top) / box.height) * down);
      if (row < 0 || column < 0 || row >= down || column >= across) return -1;
      return skip + row * across + column;
    };
    const where = (token) => {
      const patch = token - skip;
      return R.t("image.patch", { row: Math.floor(patch / across) + 1, column: (patch % across) + 1 });
    };
    layer.addEventListener("click", (event) => {
      const token = patchAt(event);
      if (token < 0 || !last) return;
      if (shownOn(last.entry.n)) R.set({ query: token, pinned: true });
      else R.set({ key: token });
    });
    layer.addEventListener("pointermove", (event) => {
      const token = patchAt(event);
      if (token < 0 || !last) return;
      if (shownOn(last.entry.n) && !R.state.pinned) R.hover(token, -1);
      else read(token);
    });
    // arrows move by a patch here, in both directions of the picture
    layer.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
      if (!move || event.shiftKey || !last || !shownOn(last.entry.n)) return;
      event.preventDefault();
      const now = Math.max(skip, R.state.query) - skip;
      const next = now + move;
      if (next >= 0 && next < patches) R.set({ query: skip + next, pinned: true });
    });

    function read(token) {
      if (!last || !last.row) return;
      readout.textContent = R.t("image.read", { place: where(token), weight: R.number(last.row[token]) });
    }

    function paint(found) {
      last = found;
      const { entry, row, query } = found;
      const [width, height] = size();
      for (const element of [frame, photo]) {
        element.style.width = width + "px";
        element.style.height = height + "px";
      }
      const pen = R.canvas(layer, width, height);
      pen.clearRect(0, 0, width, height);
      const fits = shownOn(entry.m);
      if (!row || !fits) {
        broken.hidden = true;
        summary.textContent = R.t(row ? "image.other" : "row.none");
        return;
      }
      const [wide, tall] = [width / across, height / down];
      const most = kit.largest(row.subarray(skip, skip + patches));
      for (let k = 0; k < patches; k += 1) {
        const weight = row[skip + k];
        pen.fillStyle = weight === weight ? R.colour(kit.stretch(weight / (most || 1))) : R.css("--unknown");
        // one pixel more, so that no seam of the picture shines through between patches
        pen.fillRect((k % across) * wide, Math.floor(k / across) * tall, wide + 0.6, tall + 0.6);
      }
      const best = R.top(row.slice(skip, skip + patches), 5).filter(([, weight]) => weight > 0);
      if (mode.ranks) {
        pen.textAlign = "center";
        pen.textBaseline = "middle";
        pen.font = "bold " + Math.max(9, Math.min(16, tall * 0.55)) + "px sans-serif";
        best.forEach(([k, weight], rank) => {
          pen.fillStyle = kit.ink(kit.stretch(weight / most));
          pen.fillText(String(rank + 1), ((k % across) + 0.5) * wide, (Math.floor(k / across) + 0.5) * tall);
        });
      }
      if (shownOn(entry.n) && query >= skip && query < skip + patches) {
        const k = query - skip;
        for (const [colour, line] of [["#000", 4], ["#fff", 2]]) {
          pen.strokeStyle = colour;
          pen.lineWidth = line;
          pen.strokeRect((k % across) * wide + 1, Math.floor(k / across) * tall + 1, wide - 2, tall - 2);
        }
      }
      const list = best.map(([k, weight]) => where(skip + k) + " " + R.number(weight)).join(", ");
      const from = shownOn(entry.n) && query >= skip ? where(query) : kit.quote(entry.queries, query);
      const none = kit.broken(row) ? "NaN" : R.t("row.nothing");
      summary.textContent = R.t("image.summary", { token: from, index: query, keys: list || none });
      layer.setAttribute("aria-label", summary.textContent);
      let outside = 0;
      row.forEach((weight, k) => (outside += k < skip || k >= skip + patches ? weight : 0));
      note.textContent = R.t(
        "image.note", { most: R.number(most), outside: R.number(outside) },
      ) + " " + (kit.broken(row) ? "" : kit.kindNote(entry));
      broken.hidden = !kit.broken(row);
      if (R.state.key >= skip && R.state.key < skip + patches) read(R.state.key);
      else readout.textContent = R.t("image.hint");
    }

    // every query that is not a patch: class and register tokens, or the words of a caption (a stretch of them, if many)
    function offer(entry, query) {
      const all = [];
      for (let k = 0; k < entry.n; k += 1) if (!shownOn(entry.n) || k < skip || k >= skip + patches) all.push(k);
      const at = Math.max(0, all.indexOf(query));
      const from = Math.max(0, Math.min(all.length - 120, at - 60));
      others.replaceChildren(
        ...all.slice(from, from + 120).map((k) =>
          R.el(
            "button",
            {
              class: "button patch-token", type: "button", "data-index": k, "aria-pressed": String(k === query),
              onclick: () => R.set({ query: k, pinned: true }),
            },
            R.el("bdi", {}, R.label(entry.queries, k) || String(k)),
          ),
        ),
      );
      if (!all.length) others.append(R.el("span", { class: "quiet" }, R.t("image.noOthers")));
    }

    function show(state) {
      const entry = R.entry(state.entry);
      const query = Math.min(state.query, entry.n - 1);
      offer(entry, query);
      draw(R.shown(entry.id, query), (found) => paint({ entry, query, row: found && found.row }));
    }
    return { show };
  });
})();
