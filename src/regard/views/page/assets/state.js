// one store for what the reader chose; the address keeps it, listeners hear of each change
(() => {
  const words = typeof WORDS === "undefined" ? JSON.parse(document.getElementById("regard-words").textContent) : WORDS;
  const rank = { exact: 0, top: 1, none: 2 };
  const first = [...R.data.entries].sort((a, b) => rank[R.rowKind(a.id)] - rank[R.rowKind(b.id)])[0];
  // an even weight among so many is a few of 256 steps of colour: beyond, all but the peaks would look like nothing
  const SHORT = 64;
  const long = R.data.entries.some(({ m }) => m > SHORT);
  const state = {
    view: "grid", entry: first ? first.id : -1, other: -1, query: 0, key: -1, zoom: null, sinks: false, log: long,
    pinned: false, lang: R.data.lang === "zh" ? "zh" : "en", theme: "auto", find: "",
  };
  const initial = { ...state };
  R.state = state;
  const listeners = [];
  R.on = (listener) => void listeners.push(listener);

  // ---- address ----
  // a sandboxed frame may refuse its own address: the page then works without it
  function readHash() {
    try {
      return new URLSearchParams(location.hash.slice(1));
    } catch {
      return new URLSearchParams();
    }
  }
  function parse(name, text) {
    if (name === "zoom") {
      const edges = text.split(",").map(Number);
      return edges.length === 4 && edges.every((edge) => Number.isInteger(edge) && edge >= 0) ? edges : null;
    }
    if (typeof state[name] === "boolean") return text === "1";
    if (typeof state[name] === "number") return Number.isInteger(Number(text)) ? Number(text) : state[name];
    return text;
  }
  function print(value) {
    if (typeof value === "boolean") return value ? "1" : "0";
    return String(value);
  }
  let hashText = "";
  let timer = 0;
  function writeHash() {
    timer = 0;
    const parts = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) {
      // choices that are as they were at first stay out of the address
      const plain = ["sinks", "log", "pinned", "lang", "theme"].includes(name) && value === initial[name];
      if (value !== null && value !== "" && value !== -1 && !plain) parts.set(name, print(value));
    }
    hashText = "#" + parts.toString();
    try {
      history.replaceState(null, "", hashText);
    } catch {
      // no address here; nothing else depends on it
    }
  }

  // ---- change ----
  function settle(next) {
    // whatever a stale address or a new head says, the numbers stay inside the entry
    if (!R.entry(next.entry)) next.entry = first ? first.id : -1;
    if (!R.entry(next.other)) next.other = -1;
    if (!["auto", "light", "dark"].includes(next.theme)) next.theme = "auto";
    if (!["en", "zh"].includes(next.lang)) next.lang = "en";
    const entry = R.entry(next.entry);
    if (!entry) return;
    next.query = Math.min(Math.max(next.query, 0), entry.n - 1);
    next.key = Math.min(Math.max(next.key, -1), entry.m - 1);
    if (next.zoom) {
      const [top, bottom, left, right] = next.zoom;
      if (!(top < bottom && bottom <= entry.n && left < right && right <= entry.m)) next.zoom = null;
    }
  }
  R.set = (patch) => {
    const before = { ...state };
    Object.assign(state, patch);
    settle(state);
    const changed = {};
    for (const name of Object.keys(state)) if (state[name] !== before[name]) changed[name] = state[name];
    if (!Object.keys(changed).length) return;
    // browsers refuse more than a few address changes a second
    if (!timer) timer = setTimeout(writeHash, 300);
    for (const listener of listeners) listener(state, changed);
  };
  R.hover = (query, key) => {
    if (!state.pinned) R.set({ query, key });
    else R.set({ key });
  };
  function readState() {
    const patch = {};
    for (const [name, text] of readHash()) if (name in state) patch[name] = parse(name, text);
    return patch;
  }
  // where the writer wants the page to open, unless the address says otherwise
  const { view, entry, query } = R.data.start || {};
  const asked = readState();
  if (typeof view === "string") state.view = view;
  if (Number.isInteger(entry)) state.entry = entry;
  // a query is one of its own head: another head in the address has none to do with it
  if (Number.isInteger(query) && (asked.entry ?? state.entry) === state.entry) state.query = query;
  Object.assign(state, asked);
  settle(state);
  window.addEventListener("hashchange", () => {
    if (location.hash !== hashText) R.set(readState());
  });

  // ---- words ----
  // what the page says about itself comes with the data, in both languages
  const { en = "", zh = "" } = R.data.note || {};
  words["page.note"] = {
    en: en.replace("total variation", "[total variation|variation]"), zh: zh.replace("总变差", "[总变差|variation]"),
  };
  const phrase = (key) => (words[key] ? words[key][state.lang] || words[key].en : key);
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
  // [queries|query] is a term that is explained where it can be pointed at; elsewhere it is a word like others
  const TERM = /\[([^\]|]+)\|(\w+)\]/g;
  R.t = (key, values = {}) => fill(phrase(key).replace(TERM, "$1"), values);
  R.write = (element, key, values = {}) => {
    const parts = phrase(key).split(TERM);
    element.replaceChildren(...parts.flatMap((part, at) =>
      at % 3 === 2 ? [] : at % 3 ? [R.term(part, parts[at + 1])] : part ? [fill(part, values)] : []));
    return element;
  };
  // what is said of a pooling has words of its own, where there are such
  R.about = (entry, key) => (R.pools(entry) && key + ".pooled" in words ? key + ".pooled" : key);
  R.number = (x) => {
    if (x === 0) return "0";
    if (Math.abs(x) >= 1000) return Math.round(x).toLocaleString("en");
    if (Math.abs(x) >= 0.001) return String(Number(x.toPrecision(3))).replace("-", "−");
    return x.toExponential(1).replace(".0e", "e").replaceAll("-", "−");
  };
  // a text that may come in both languages
  R.either = (text) => (text && typeof text === "object" ? text[state.lang] || text.en || "" : text || "");
  R.badge = (element, { id }) => {
    const [kind, broken] = [R.rowKind(id), R.broken(id)];
    element.textContent = R.t("rows." + kind) + (broken ? " · " + R.t("nan.some") : "");
    element.dataset.kind = broken ? "nan" : kind;
  };
  // which of two runs, where there are two
  R.letter = (entry) => (R.data.models.length > 1 ? "AB"[entry.model] + " · " : "");
  // a script from right to left must not turn what follows its quotes
  R.quoted = (side, k) => {
    const own = R.bare(side, k);
    return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(own) ? "\u2068" + own + "\u2069" : own;
  };
  // which run, what kind if it is none of a text's own, and which head: in three parts
  R.names = (entry, short = false) => {
    const model = R.data.models.length > 1 && !short ? R.data.models[entry.model] + " · " : "";
    if (R.pools(entry)) return [model, R.t("entry.pooling"), R.siblings(entry).length > 1 ? " · " + R.t("entry.head", entry) : ""];
    const cross = entry.kind === "cross";
    return [model, cross ? R.t("entry.cross") : "", (cross ? " · " : "") + R.t("entry.name", entry)];
  };
  R.name = (entry, short) => R.names(entry, short).join("");

  // ---- document ----
  R.el = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2).toLowerCase(), value);
      else if (name === "dataset") Object.assign(element.dataset, value);
      else if (name === "class") element.className = value;
      else if (name === "style") Object.assign(element.style, value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  };
  // an element whose words follow the language
  R.say = (element, key, attribute = "") => {
    element.dataset[attribute ? "sayIn" : "say"] = attribute ? attribute + "=" + key : key;
    if (attribute) element.setAttribute(attribute, R.t(key));
    else R.write(element, key);
    return element;
  };
  R.respeak = () => {
    for (const element of document.querySelectorAll("[data-say]")) R.write(element, element.dataset.say);
    for (const element of document.querySelectorAll("[data-say-in]")) {
      const [attribute, key] = element.dataset.sayIn.split("=");
      element.setAttribute(attribute, R.t(key));
    }
  };
  let live = null;
  R.announce = (text) => {
    live = live || document.getElementById("regard-live");
    if (live && live.textContent !== text) live.textContent = text;
  };

  // ---- registers ----
  R.views = [];
  R.view = (name, view) => void R.views.push({ name, ...view });
  R.keys = [];
  R.key = (combo, description, fn, view = "") => void R.keys.push({ combo, words: description, fn, view });
})();
