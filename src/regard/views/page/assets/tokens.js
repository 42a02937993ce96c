// Parts shared by the views of text, arcs, alignment, image, graph and table: small controls, words, and a flow of
// tokens that keeps only what can be seen in the document.
(() => {
  // tokens in the document at once, over all flows of a view: with its controls a view stays under 400 elements
  const MOST = 320;
  const NO_WIDTH = 26; // narrowest token, so that one-character tokens can be hit with a finger
  const kit = (R.kit = {});

  // ---- small controls ----
  kit.press = (key, fn, attributes = {}) =>
    R.el("button", { class: "button", type: "button", onclick: fn, ...attributes }, R.t(key));

  kit.check = (id, key, on, fn) => {
    const box = R.el("input", { type: "checkbox", id });
    box.checked = on;
    box.addEventListener("change", () => fn(box.checked));
    return R.el("label", { class: "control" }, box, R.el("span", {}, R.t(key)));
  };

  kit.slider = (id, key, [least, most, step], value, fn) => {
    const range = R.el("input", { type: "range", id });
    Object.assign(range, { min: least, max: most, step, value });
    const shown = R.el("output", { class: "control-value" }, R.number(Number(range.value)));
    range.addEventListener("input", () => {
      shown.textContent = R.number(Number(range.value));
      fn(Number(range.value));
    });
    return R.el("label", { class: "control" }, R.el("span", {}, R.t(key)), range, shown);
  };

  // a view of ours is built again when the language changes, so that no string of the old one stays
  kit.view = (name, title, build) => {
    let place = null;
    let language = null;
    let part = null;
    R.view(name, {
      title,
      mount(element) {
        place = element;
      },
      show(state, patch) {
        if (language !== state.lang) {
          language = state.lang;
          if (part && part.leave) part.leave();
          place.replaceChildren();
          part = build(place);
        }
        part.show(state, patch || {});
      },
      hide() {
        if (part && part.hide) part.hide();
      },
    });
  };

  // only the newest of several running promises may draw: hovering is faster than decoding
  kit.latest = () => {
    let turn = 0;
    return (promise, fn) => {
      const mine = ++turn;
      promise.then(
        (value) => mine === turn && fn(value),
        (error) => mine === turn && R.announce(String(error && error.message ? error.message : error)),
      );
    };
  };

  // ---- facts about an entry ----
  kit.side = (index) => R.data.sides[index] || { labels: [], special: [] };
  kit.special = (index, k) => Boolean((kit.side(index).special || [])[k]);
  // marks stand for later bytes of a character: tokens without text of their own
  const marks = new Map();
  kit.mark = (index, k) => {
    if (!marks.has(index)) marks.set(index, new Set(kit.side(index).marks || []));
    return marks.get(index).has(k);
  };
  kit.text = (index, k) => {
    const side = kit.side(index);
    return side.joined && (kit.special(index, k) || kit.mark(index, k)) ? "" : side.labels[k];
  };
  kit.received = async (entry) => (entry.blobs.received === undefined ? null : R.blob(entry.blobs.received));
  kit.largest = (values) => {
    let most = 0;
    for (const value of values) if (value > most) most = value;
    return most;
  };
  // a share of the strongest as a place on the colours; two decades in the log scale: with more, all tokens look alike
  kit.stretch = (share) => {
    if (!(share > 0)) return 0;
    return R.state.log ? Math.max(0, 1 + Math.log10(share) / 2) : Math.min(1, share);
  };
  // at this colour black and white read equally well (4.6:1)
  kit.ink = (place) => (place > 0.464 ? "#000000" : "#ffffff");
  // behind words the paper is zero: on a light page the dark end of cividis would make the smallest weights the loudest
  kit.shade = (place) => {
    const dark = document.documentElement.dataset.theme === "dark";
    return dark ? { fill: R.colour(place), ink: kit.ink(place) } : { fill: R.tint(place), ink: "var(--ink)" };
  };
  kit.lowest = (most) => (R.state.log ? "≤ " + R.number(most / 100) : "0");
  kit.kindNote = (entry) => {
    const kind = R.rowKind(entry.id);
    const parts = [R.t("row." + kind)];
    if (kind === "top" && entry.why) parts.push(entry.why);
    if (R.state.sinks) parts.push(R.t("sinks.note"));
    return parts.join(" · ");
  };
  // names are not text that was cut: their spaces stay spaces
  kit.plain = (text) => String(text).split(" ").map(R.visible).join(" ");
  // a token written from right to left must not turn the sentence around it
  const turned = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}]/u;
  kit.quoted = (text) => (turned.test(text) ? "\u2068“" + text + "”\u2069" : "“" + text + "”");
  kit.quote = (side, k) => kit.quoted(R.label(side, k));
  kit.summary = (entry, query, tops) => {
    const list = tops.filter(([, weight]) => weight > 0).slice(0, 5);
    const keys = list.map(([key, weight]) => kit.quote(entry.keys, key) + " " + R.number(weight)).join(", ");
    return R.t("row.summary", { token: kit.quote(entry.queries, query), index: query, keys: keys || R.t("row.nothing") });
  };

  // ---- words ----
  // tokens of one word as [start, stop), from the language's own segmenter: it knows words without spaces too
  const cuts = new Map();
  kit.words = (index) => {
    if (cuts.has(index)) return cuts.get(index);
    const side = kit.side(index);
    const starts = new Set();
    let text = "";
    const begin = side.labels.map((_, k) => {
      const at = text.length;
      text += kit.text(index, k);
      return at;
    });
    if (typeof Intl !== "undefined" && Intl.Segmenter) {
      for (const piece of new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)) {
        // a space belongs to the word after it, where most tokenizers put it too
        const blank = piece.index > 0 && /\s$/u.test(text[piece.index - 1]) && !/^\s/u.test(piece.segment);
        if (!blank) starts.add(piece.index);
      }
    } else {
      for (const found of text.matchAll(/\s*\S+/gu)) starts.add(found.index);
    }
    const groups = [];
    side.labels.forEach((_, k) => {
      const alone = kit.special(index, k) || (k > 0 && kit.special(index, k - 1));
      if (k === 0 || alone || (kit.text(index, k) !== "" && starts.has(begin[k]))) groups.push([k, k + 1]);
      else groups[groups.length - 1][1] = k + 1;
    });
    cuts.set(index, groups);
    return groups;
  };

  // ---- the flow of tokens ----
  // Lines are laid out from measured widths; only the lines that can be seen are elements.
  kit.flow = ({ id, share = 1, pick, hover, leave }) => {
    const most = Math.floor(MOST * share);
    const space = R.el("div", { class: "flow-space", role: "presentation" });
    const box = R.el("div", { class: "flow", id, role: "listbox", tabindex: "0" }, space);
    const widths = new Map();
    const pen = document.createElement("canvas").getContext("2d");
    let items = []; // {from, to, text, raw}
    let owner = new Int32Array(0); // token -> item
    let side = 0;
    let line = new Int32Array(0); // item -> its line
    let left = new Float32Array(0);
    let wide = new Float32Array(0);
    let starts = [0];
    let tall = 34;
    let paint = () => ({});
    let laid = 0;

    const measure = (text) => {
      let width = widths.get(text);
      if (width === undefined) {
        width = Math.max(NO_WIDTH, Math.ceil(pen.measureText(text).width) + 11);
        widths.set(text, width);
      }
      return width;
    };

    const layout = () => {
      const room = box.clientWidth - 8;
      if (room < 40) return;
      const style = getComputedStyle(box);
      pen.font = style.fontSize + " " + style.fontFamily;
      tall = Math.round(parseFloat(style.fontSize) * 2.1);
      laid = box.clientWidth;
      line = new Int32Array(items.length);
      left = new Float32Array(items.length);
      wide = new Float32Array(items.length);
      starts = [0];
      let x = 0;
      items.forEach((item, k) => {
        const width = Math.min(room, measure(item.text));
        const broken = k > 0 && items[k - 1].raw.includes("\n");
        if (x > 0 && (broken || x + width > room)) {
          starts.push(k);
          x = 0;
        }
        line[k] = starts.length - 1;
        left[k] = x + 4;
        wide[k] = width;
        x += width + 3;
      });
      // as many lines as the fullest stretch of them allows
      let lines = Math.max(3, Math.floor((window.innerHeight * 0.58 * Math.max(share, 0.5)) / tall));
      const count = (first, n) => (starts[Math.min(first + n, starts.length)] ?? items.length) - starts[first];
      while (lines > 1 && starts.some((_, first) => count(first, lines + 1) > most)) lines -= 1;
      box.style.height = Math.min(lines, starts.length) * tall + 10 + "px";
      space.style.height = starts.length * tall + 4 + "px";
      render();
    };

    const render = () => {
      if (!items.length || !line.length) return space.replaceChildren();
      const first = Math.max(0, Math.floor(box.scrollTop / tall));
      const last = Math.min(starts.length, Math.ceil((box.scrollTop + box.clientHeight) / tall));
      const from = starts[first] ?? 0;
      const to = Math.min(from + most, starts[last] ?? items.length);
      const old = space.children;
      const right = box.dir === "rtl";
      for (let k = from; k < to; k += 1) {
        const token = old[k - from] || space.appendChild(R.el("span", { class: "token", role: "option", dir: "auto" }));
        const item = items[k];
        const look = paint(k, item);
        if (token.textContent !== item.text) token.textContent = item.text;
        token.id = id + "-" + item.from;
        token.dataset.index = item.from;
        token.dataset.text = item.raw;
        token.className = "token" + (look.marks ? " " + look.marks : "");
        token.title = look.title || "";
        token.setAttribute("aria-selected", look.chosen ? "true" : "false");
        token.setAttribute("aria-posinset", k + 1);
        token.setAttribute("aria-setsize", items.length);
        const style = token.style;
        style.top = line[k] * tall + 5 + "px";
        style.left = right ? "auto" : left[k] + "px";
        style.right = right ? left[k] + "px" : "auto";
        style.width = wide[k] + "px";
        style.backgroundColor = look.fill || "";
        style.color = look.ink || "";
        style.setProperty("--weight", look.share || 0);
        if (look.chosen) box.setAttribute("aria-activedescendant", token.id);
      }
      while (old.length > to - from) old[old.length - 1].remove();
      const active = box.getAttribute("aria-activedescendant");
      if (active && !document.getElementById(active)) box.removeAttribute("aria-activedescendant");
    };

    const hit = (event) => {
      const token = event.target.closest && event.target.closest(".token");
      return token && items[owner[Number(token.dataset.index)]];
    };
    box.addEventListener("scroll", () => requestAnimationFrame(render), { passive: true });
    box.addEventListener("click", (event) => hit(event) && pick && pick(hit(event)));
    box.addEventListener("pointerover", (event) => hit(event) && hover && hover(hit(event)));
    box.addEventListener("pointerleave", () => leave && leave());
    // what is copied is the input itself, not the marks that make its spaces visible
    box.addEventListener("copy", (event) => {
      const chosen = document.getSelection();
      const text = [...space.children].filter((token) => chosen.containsNode(token, true)).map((token) => token.dataset.text);
      if (!text.length) return;
      event.clipboardData.setData("text/plain", text.join(""));
      event.preventDefault();
    });
    const watcher = new ResizeObserver(() => box.clientWidth !== laid && layout());
    watcher.observe(box);

    return {
      element: box,
      items: () => items,
      item: (token) => items[owner[token]],
      set(index, groups, name) {
        side = index;
        const labels = kit.side(side).labels;
        box.setAttribute("aria-label", name);
        const strong = labels.join("").slice(0, 4000).match(/[\p{L}]/u);
        box.dir = strong && turned.test(strong[0]) ? "rtl" : "ltr";
        items = groups.map(([from, to]) => {
          let [text, raw] = ["", ""];
          for (let k = from; k < to; k += 1) {
            if (to - from === 1 || !kit.mark(side, k)) text += R.label(side, k);
            raw += kit.text(side, k);
          }
          return { from, to, text, raw };
        });
        owner = new Int32Array(labels.length);
        items.forEach((item, k) => owner.fill(k, item.from, item.to));
        layout();
      },
      paint(fn) {
        paint = fn;
        if (laid !== box.clientWidth) layout();
        else render();
      },
      reveal(token) {
        if (!line.length || token < 0 || token >= owner.length) return;
        const top = line[owner[token]] * tall;
        const page = box.clientHeight;
        if (top < box.scrollTop || top + tall > box.scrollTop + page) box.scrollTop = Math.max(0, top - page / 2);
        render();
      },
      leave: () => watcher.disconnect(),
    };
  };
})();
