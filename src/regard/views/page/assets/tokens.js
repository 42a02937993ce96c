// Parts shared by the views of text, arcs, alignment, image, graph and table: small controls, facts, and words.
(() => {
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
  // names that the page gives to its texts are in the reader's language, those of its author as they are
  const NAMES = /^(source|target|text|inputs|image|label|tags|words)(?: \(last (\d+)\))?( B)?$/;
  kit.name = (index) => {
    const [, name, last, other] = NAMES.exec(kit.side(index).name) || [];
    if (!name) return kit.plain(kit.side(index).name ?? "");
    return R.t("side." + name) + (last ? R.t("side.last", { n: last }) : "") + (other || "");
  };
  // where queries and keys are of two texts, or of one that is shifted, a token has a place in each
  kit.apart = (entry) => entry.kind === "cross" || entry.queries !== entry.keys;
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
  // a bar that is no wider than this share of its token is a speck
  kit.bar = (share) => (share >= 0.1 ? share : 0);
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
    const parts = [R.t(R.about(entry, "row." + kind))];
    if (kind === "top" && entry.why) parts.push(entry.why);
    if (R.state.sinks) parts.push(R.t("sinks.note"));
    return parts.join(" · ");
  };
  // NaN is no weight, small or large: a row that holds one says so
  kit.warning = (id, ...keys) =>
    R.el("p", { class: "warning", id, hidden: true }, ["row.nan", ...keys].map((key) => R.t(key)).join(" "));
  kit.broken = (row) => Boolean(row) && row.some((weight) => weight !== weight);
  // names are not text that was cut: their spaces stay spaces
  kit.plain = (text) => String(text).split(" ").map(R.visible).join(" ");
  // a token written from right to left must not turn the sentence around it
  const turned =
    /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;
  kit.isolate = (text) => (turned.test(text) ? "\u2068" + text + "\u2069" : text);
  kit.quoted = (text) => kit.isolate("“" + text + "”");
  kit.quote = (side, k) => kit.quoted(R.bare(side, k));
  // a text runs as its first letter does; the names of special tokens are none of it
  kit.direction = (index) => {
    const { labels } = kit.side(index);
    for (let k = 0; k < Math.min(labels.length, 4000); k += 1) {
      const letter = kit.special(index, k) || kit.mark(index, k) ? null : labels[k].match(/\p{L}/u);
      if (letter) return turned.test(letter[0]) ? "rtl" : "ltr";
    }
    return "ltr";
  };
  // signs of Chinese, Japanese and Korean stand upright, one below the other, where other scripts are turned
  const upright = /^[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Hang}\p{sc=Bopo}\u3000-\u303f\uff00-\uff65·ー]+$/u;
  kit.upright = (text) => upright.test(text) && [...text].length <= 8;
  kit.summary = (entry, query, tops, broken = false) => {
    // beside a large weight, what is no hundredth of it says nothing
    const list = tops.filter(([, weight]) => weight > 0 && weight >= tops[0][1] / 100).slice(0, 5);
    const keys = list.map(([key, weight]) => kit.quote(entry.keys, key) + " " + R.number(weight)).join(", ");
    const none = broken ? "NaN" : R.t("row.nothing");
    return R.t(R.about(entry, "row.summary"), { token: kit.quote(entry.queries, query), index: query, keys: keys || none });
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
})();
