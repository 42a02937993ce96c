// The keyboard: every command has a key, "?" lists them all; search; and the spoken summary of a row.
(() => {
  const kit = R.kit;
  const SIGNS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

  // ---- commands ----
  const entry = () => R.entry(R.state.entry);
  const turn = (by) => R.set({ query: Math.min(entry().n - 1, Math.max(0, R.state.query + by)), pinned: true });
  const point = (by) => R.set({
    key: Math.min(entry().m - 1, Math.max(0, R.state.key < 0 ? R.state.query : R.state.key + by)), pinned: true,
  });
  const see = (name) => R.views.some((view) => view.name === name) && R.set({ view: name });
  const press = (id) => document.getElementById(id)?.click();
  let before = "grid"; // where the table was opened from

  R.key("ArrowLeft", "key.previous", () => turn(-1));
  R.key("ArrowRight", "key.next", () => turn(1));
  R.key("ArrowUp", "key.keyBack", () => point(-1));
  R.key("ArrowDown", "key.keyOn", () => point(1));
  R.key("Home", "key.first", () => R.set({ query: 0, pinned: true }));
  R.key("End", "key.last", () => R.set({ query: entry().n - 1, pinned: true }));
  R.key("Shift+ArrowLeft", "key.headBack", () => R.step(0, -1));
  R.key("Shift+ArrowRight", "key.headOn", () => R.step(0, 1));
  R.key("Shift+ArrowUp", "key.layerBack", () => R.step(-1, 0));
  R.key("Shift+ArrowDown", "key.layerOn", () => R.step(1, 0));
  R.key("/", "key.search", () => kit.search());
  R.key("n", "key.found", () => seek(1));
  R.key("Shift+N", "key.foundBack", () => seek(-1));
  R.key("z", "key.zoomPair", () => {
    // a stretch of the map around the chosen pair
    const { n, m } = entry();
    const at = (centre, count) => {
      const from = Math.max(0, Math.min(count - 64, centre - 32));
      return [from, Math.min(count, from + 64)];
    };
    const { query, key } = R.state;
    R.set({ view: "map", zoom: [...at(query, n), ...at(key < 0 ? Math.min(query, m - 1) : key, m)] });
  });
  R.key("c", "key.compare", () => see("compare"));
  R.key("s", "key.sinks", () => R.set({ sinks: !R.state.sinks }));
  R.key("p", "key.pin", () => R.set({ pinned: !R.state.pinned }));
  R.key("g", "key.log", () => R.set({ log: !R.state.log }));
  R.key("e", "key.export", () => kit.export());
  R.key("t", "key.table", () => {
    if (R.state.view !== "table") before = R.state.view;
    see(R.state.view === "table" ? before : "table");
  });
  R.key("w", "key.words", () => press("text-words"), "text");
  R.key("r", "key.received", () => press("text-received"), "text");
  R.key("l", "key.language", () => R.set({ lang: R.state.lang === "zh" ? "en" : "zh" }));
  R.key("d", "key.dark", () => R.set({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }));
  R.key("?", "key.help", () => kit.help());
  R.key("Escape", "key.escape", () => {
    if (!bar.hidden) shut();
    else R.set({ pinned: false, key: -1 });
  });
  for (let k = 1; k <= 9; k += 1) R.key(String(k), "key.view", () => R.views[k - 1] && see(R.views[k - 1].name));

  // ---- dispatch ----
  // a command of the view goes before one of the page; of two alike the later counts
  const command = (combo) => {
    const fit = R.keys.filter((key) => key.combo === combo && (!key.view || key.view === R.state.view));
    return fit.filter((key) => key.view).pop() || fit.pop();
  };
  const typing = (element) => element.closest && element.closest(
    "input:not([type=checkbox]):not([type=radio]), select, textarea, [contenteditable]"
  );
  // a region that was reached to be scrolled keeps its arrows
  const scrolls = (element, key) => {
    if (!element.matches || !element.matches(".scroll:focus-visible")) return false;
    if (key === "ArrowLeft" || key === "ArrowRight") return element.scrollWidth > element.clientWidth;
    return (key === "ArrowUp" || key === "ArrowDown") && element.scrollHeight > element.clientHeight;
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    const letter = event.key.length === 1 && event.key.toLowerCase() === event.key.toUpperCase();
    // signs such as "?" need Shift on some keyboards and not on others
    const combo = event.shiftKey && !letter ? "Shift+" + event.key : event.key;
    const found = command(combo);
    if (!found || scrolls(event.target, event.key)) return;
    event.preventDefault();
    found.fn(event);
  });

  // ---- help ----
  kit.help = () => {
    if (document.getElementById("help")) return;
    const listed = new Map();
    for (const key of R.keys) {
      const digit = /^[1-9]$/.test(key.combo);
      listed.set((digit ? "1…9" : key.combo) + "\n" + key.view, { ...key, combo: digit ? "1…9" : key.combo });
    }
    // what works everywhere stands first
    const order = [...listed.values()].sort((a, b) => Boolean(a.view) - Boolean(b.view));
    const rows = order.map((key) => {
      const signs = key.combo.split("+").filter(Boolean).map((part) => R.el("kbd", {}, SIGNS[part] || part));
      const where = key.view ? " (" + R.t("view." + key.view) + ")" : "";
      return R.el(
        "tr", {}, R.el("th", { scope: "row" }, ...(signs.length ? signs : [R.el("kbd", {}, key.combo)])),
        R.el("td", {}, R.t(key.words) + where),
      );
    });
    const heads = R.el(
      "thead", {},
      R.el("tr", {}, R.el("th", { scope: "col" }, R.t("help.key")), R.el("th", { scope: "col" }, R.t("help.what"))),
    );
    const region = { class: "scroll help-list", tabindex: "0", role: "region", "aria-label": R.t("help.title") };
    const terms = R.terms.flatMap((name) => [R.el("dt", {}, R.t("name." + name)), R.el("dd", {}, R.t("term." + name))]);
    kit.dialog("help", "help.title", R.el("div", region,
      R.el("table", { id: "help-keys" }, heads, R.el("tbody", {}, ...rows)),
      R.el("h3", {}, R.t("help.terms")), R.el("dl", { id: "help-terms" }, ...terms)));
  };

  // ---- search ----
  const button = (id, key, fn) => R.say(R.el("button", { class: "button", type: "button", id, onclick: fn }), key);
  const input = R.el("input", { type: "search", id: "search-text", autocomplete: "off", spellcheck: "false" });
  const count = R.el("output", { class: "quiet", id: "search-count" });
  const buttons = [
    button("search-previous", "search.previous", () => seek(-1)),
    button("search-next", "search.next", () => seek(1)),
    button("search-close", "dialog.close", () => shut()),
  ];
  const bar = R.el("div", { class: "search row", id: "search", role: "search", hidden: true },
    R.el("label", { class: "control" }, R.say(R.el("span", {}), "search.label"), input), count, ...buttons);
  let opener = null;
  kit.search = () => {
    opener = document.activeElement;
    bar.hidden = false;
    input.value = R.state.find;
    input.focus();
    input.select();
    tally(-1);
  };
  function shut() {
    bar.hidden = true;
    R.set({ find: "" });
    if (opener && opener.isConnected) opener.focus();
  }
  input.addEventListener("input", () => {
    R.set({ find: input.value });
    const [first] = matches();
    if (first) show(first, 0);
    else tally(-1);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") seek(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") shut();
    else return;
    event.preventDefault();
  });

  // tokens that hold part of a match: what is sought may begin in one token and end in another
  const known = new Map();
  kit.found = (side) => {
    const sought = R.state.find.toLocaleLowerCase();
    if (!sought) return new Set();
    const old = known.get(side);
    if (old && old.sought === sought) return old.tokens;
    const tokens = new Set();
    const starts = [];
    const ends = [];
    let text = "";
    kit.side(side).labels.forEach((label, k) => {
      starts.push(text.length);
      text += (kit.mark(side, k) ? "" : label).toLocaleLowerCase();
      ends.push(text.length);
    });
    let k = 0;
    const list = [];
    for (let at = text.indexOf(sought); at >= 0; at = text.indexOf(sought, at + 1)) {
      while (ends[k] <= at) k += 1;
      if (list[list.length - 1] !== k) list.push(k);
      for (let j = k; j < starts.length && starts[j] < at + sought.length; j += 1) tokens.add(j);
    }
    known.set(side, { sought, tokens, list });
    return tokens;
  };
  function matches() {
    const { queries, keys } = entry();
    const list = (side) => (kit.found(side).size ? known.get(side).list : []);
    const own = list(queries).map((token) => ({ query: token }));
    return kit.apart(entry()) ? [...own, ...list(keys).map((token) => ({ key: token }))] : own;
  }
  let last = -1;
  function seek(by) {
    const all = matches();
    if (!all.length) return tally(-1);
    show(all[(last + by + all.length) % all.length], (last + by + all.length) % all.length);
  }
  function show(place, at) {
    last = at;
    tally(at);
    R.set({ ...place, pinned: true });
  }
  function tally(at) {
    if (at < 0) last = -1;
    const all = matches();
    count.textContent = R.state.find ? R.t("search.count", { at: at + 1, n: all.length }) : "";
  }

  // ---- what is said ----
  let timer = 0;
  R.on((state, patch) => {
    if (!["query", "key", "entry", "sinks"].some((name) => name in patch)) return;
    clearTimeout(timer);
    // while the pointer or a held key runs over the text nothing is said
    timer = setTimeout(async () => {
      const here = entry();
      if ("key" in patch && state.key >= 0 && !("query" in patch)) {
        const { row } = await R.shown(here.id, state.query);
        const words = {
          query: kit.quote(here.queries, state.query), key: kit.quote(here.keys, state.key), index: state.key,
        };
        if (row) R.announce(R.t("text.read", { ...words, weight: R.number(row[state.key]) }));
        return;
      }
      const { row } = await R.shown(here.id, state.query);
      const said = kit.summary(here, state.query, row ? R.top(row, 5) : [], kit.broken(row));
      R.announce(("entry" in patch ? R.name(here) + ". " : "") + said);
    }, 250);
  });

  // the frame is built after this file: its toolbar is there once the script has run
  Promise.resolve().then(() => {
    R.toolbar.append(
      button("open-search", "tool.search", () => kit.search()), button("open-export", "tool.export", () => kit.export()),
      button("open-help", "tool.help", () => kit.help()),
    );
    document.querySelector("header").after(bar);
  });
})();
