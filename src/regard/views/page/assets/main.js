// the frame of the page: header, pickers, tabs, status line, footer; shows the chosen view
(() => {
  const { el, say, state } = R;
  const order = ["grid", "map", "text", "arcs", "align", "compare", "image", "graph", "table"];
  const place = (view) => (order.indexOf(view.name) < 0 ? order.length : order.indexOf(view.name));
  R.views.sort((a, b) => place(a) - place(b));
  const root = el("div", { id: "regard" });
  const given = document.getElementById("regard-page") || document.body.appendChild(el("div"));
  // the header is no part of the main landmark
  given.replaceWith(root);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // ---- theme and language ----
  function dress() {
    const theme = state.theme === "auto" ? (dark.matches ? "dark" : "light") : state.theme;
    document.documentElement.dataset.theme = theme;
    document.documentElement.lang = state.lang === "zh" ? "zh-Hans" : "en";
    document.title = R.data.title || R.t("page.title");
  }
  dress();
  dark.addEventListener("change", () => {
    dress();
    refresh({ theme: state.theme });
  });

  // a view of an old address, or one that this page has no data for
  if (R.views.length && !R.views.some(({ name }) => name === state.view)) state.view = R.views[0].name;

  // ---- attentions: one per module call, each with its heads ----
  const groups = [];
  const groupOf = new Map();
  for (const entry of R.data.entries) {
    const name = entry.model + "\n" + entry.name;
    let group = groups.find((each) => each.key === name);
    if (!group) groups.push((group = { key: name, model: entry.model, heads: [], entry }));
    group.heads.push(entry);
    groupOf.set(entry.id, group);
  }
  R.siblings = (entry) => groupOf.get(entry.id).heads;
  const inModel = (model) => groups.filter((group) => group.model === model);
  const nearest = (group, head) => group.heads.find((entry) => entry.head === head) || group.heads[0];
  R.step = (layers, heads) => {
    const entry = R.entry(state.entry);
    const own = groupOf.get(entry.id);
    const all = inModel(entry.model);
    const wrap = (at, count) => (at + count) % count;
    const group = all[wrap(all.indexOf(own) + layers, all.length)];
    const at = wrap(own.heads.indexOf(entry) + heads, own.heads.length);
    R.set({ entry: heads ? own.heads[at].id : nearest(group, entry.head).id });
  };

  // ---- header ----
  const select = (key, onchange) => {
    const box = el("select", { onchange: (event) => onchange(Number(event.target.value)) });
    return { box, label: el("label", { class: "field" }, say(el("span"), key), box) };
  };
  // the same place in the other run, as far as it has one
  const model = select("pick.model", (at) => {
    const { layer: depth, kind: sort, head: number } = R.entry(state.entry);
    const own = inModel(at);
    const twin = own.find(({ entry }) => entry.layer === depth && entry.kind === sort);
    R.set({ entry: nearest(twin || own[0], number).id });
  });
  const layer = select("pick.layer", (at) => R.set({ entry: nearest(groups[at], R.entry(state.entry).head).id }));
  const head = select("pick.head", (id) => R.set({ entry: id }));
  const toggle = (key, name, term) => {
    const button = el("button", { class: "button", type: "button", onclick: () => R.set({ [name]: !state[name] }) });
    return { button: R.explain(say(button, key), term), name };
  };
  const toggles = [
    toggle("toggle.log", "log", "log"), toggle("toggle.sinks", "sinks", "sink"), toggle("toggle.pinned", "pinned", "pin"),
  ];
  const language = el("select", { onchange: (event) => R.set({ lang: event.target.value }) },
    el("option", { value: "en", lang: "en" }, "English"), el("option", { value: "zh", lang: "zh-Hans" }, "中文"));
  const theme = el("select", { onchange: (event) => R.set({ theme: event.target.value }) },
    ...["auto", "light", "dark"].map((name) => say(el("option", { value: name }), "theme." + name)));
  R.toolbar = el("div", { class: "tools", role: "group" },
    el("label", { class: "field" }, say(el("span", { class: "visually-hidden" }), "pick.language"), language),
    el("label", { class: "field" }, say(el("span", { class: "visually-hidden" }), "pick.theme"), theme));
  say(R.toolbar, "tools.label", "aria-label");
  const skip = el("a", { class: "skip", href: "#regard-main", onclick: (event) => {
    event.preventDefault();
    panelArea.focus();
  } });
  // of a long title the first lines, and a button for the rest
  const title = el("h1", { dir: "auto", class: "clamped", id: "regard-title" }, R.data.title || R.t("page.title"));
  const rest = el("button", { class: "plain quiet", type: "button", hidden: true, "aria-controls": title.id, onclick: () => {
    title.classList.toggle("clamped");
    clamp();
  } });
  function clamp() {
    const folded = title.classList.contains("clamped");
    rest.hidden = folded && title.scrollHeight <= title.clientHeight + 1;
    rest.setAttribute("aria-expanded", String(!folded));
    say(rest, folded ? "title.more" : "title.less");
  }
  const top = el("div", { class: "top" },
    el("div", { class: "brand" },
      title, rest,
      R.data.note && R.data.note.en ? say(el("p", { class: "quiet" }), "page.note") : null),
    R.toolbar);
  const pickers = el("div", { class: "pickers", role: "group" },
    R.data.models.length > 1 ? model.label : null, layer.label, head.label,
    el("div", { class: "toggles" }, toggles.map((each) => each.button)));
  say(pickers, "pick.label", "aria-label");

  // ---- tabs ----
  const tabs = el("div", { class: "tabs", role: "tablist", onkeydown: rove });
  say(tabs, "tabs.label", "aria-label");
  const panelArea = el("main", { id: "regard-main", tabindex: "-1" });
  for (const view of R.views) {
    view.tab = el("button", { role: "tab", type: "button", id: "tab-" + view.name, "aria-controls": "view-" + view.name,
      onclick: () => R.set({ view: view.name }) });
    say(view.tab, view.title || "view." + view.name);
    view.panel = el("section", { class: "view", role: "tabpanel", id: "view-" + view.name, "aria-labelledby": "tab-" + view.name,
      hidden: true });
    tabs.append(view.tab);
    panelArea.append(view.panel);
  }
  function rove(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const count = R.views.length;
    const at = R.views.findIndex((view) => view.name === state.view);
    const move = moves[event.key];
    const next = Number.isFinite(move) ? (at + move + count) % count : move < 0 ? 0 : count - 1;
    R.set({ view: R.views[next].name });
    R.views[next].tab.focus();
  }

  // ---- status and footer ----
  const kind = el("span", { class: "chip" });
  const named = el("h2", { dir: "auto" });
  const size = el("span", { class: "quiet" });
  // what went wrong is seen at once; how it was made, by whoever wants to know
  const [faults, facts] = [el("dl", { class: "facts" }), el("dl", { class: "facts" })];
  const details = el("details", { class: "details" }, say(el("summary"), "fact.details"), facts);
  const status = el("div", { class: "status" }, el("div", { class: "row" }, named, kind, size, details), faults);
  const footer = el("footer", { class: "foot" }, say(el("p", { class: "note" }), "page.caption"));
  const live = el("div", { id: "regard-live", class: "visually-hidden", "aria-live": "polite", role: "status" });
  panelArea.prepend(status);
  root.append(say(skip, "page.skip"), el("header", {}, top, pickers, tabs), panelArea, footer, live);

  function fact(key, text) {
    return text ? [el("div", {}, R.write(el("dt"), key), el("dd", { dir: "auto" }, text))] : [];
  }
  function describe() {
    const entry = R.entry(state.entry);
    if (!entry) return;
    const sort = R.rowKind(entry.id);
    const [model, kindWord, own] = R.names(entry);
    named.replaceChildren(model, kindWord ? R.term(kindWord, R.pools(entry) ? "pooling" : "cross") : "", own);
    R.badge(kind, entry);
    R.write(size, R.about(entry, "fact.sizes"), { n: entry.n.toLocaleString("en"), m: entry.m.toLocaleString("en") });
    const check = fact("fact.check", R.either(entry.check));
    const wrong = Boolean(entry.check) && entry.check.holds === false;
    facts.replaceChildren(...fact("fact.module", entry.name), ...fact("fact.terms", entry.terms), ...(wrong ? [] : check));
    faults.replaceChildren(
      ...(wrong ? check : []),
      ...fact("fact.nan", R.broken(entry.id) ? R.t("nan.why") : ""),
      ...fact("fact.why", sort === "exact" ? "" : sort === "none" ? R.t("rows.none.why") : R.either(entry.why)));
  }
  function options(box, items, chosen) {
    box.replaceChildren(...items.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  }
  function fill() {
    const entry = R.entry(state.entry);
    if (!entry) return;
    const own = groupOf.get(entry.id);
    options(model.box, R.data.models.map((name, at) => [at, name]), entry.model);
    options(layer.box, inModel(entry.model).map((group) => [groups.indexOf(group), group.entry.layer + " · " + group.entry.name]),
      groups.indexOf(own));
    options(head.box, own.heads.map((each) => [each.id, each.head + (R.detailed(each.id) ? "" : " ◦")]), entry.id);
  }

  // ---- show ----
  let shown = null;
  function refresh(patch) {
    const view = R.views.find((each) => each.name === state.view) || R.views[0];
    if (!view) return;
    if (shown !== view) {
      if (shown && shown.hide) shown.hide();
      for (const each of R.views) {
        each.panel.hidden = each !== view;
        each.tab.setAttribute("aria-selected", String(each === view));
        each.tab.tabIndex = each === view ? 0 : -1;
      }
      if (!view.mounted) {
        view.mounted = true;
        view.mount(view.panel);
      }
      // scrollIntoView would also move the page
      tabs.scrollLeft = view.tab.offsetLeft - tabs.clientWidth / 2;
      shown = view;
    }
    return view.show(state, patch);
  }
  function controls() {
    for (const { button, name } of toggles) button.setAttribute("aria-pressed", String(state[name]));
    language.value = state.lang;
    theme.value = state.theme;
  }
  R.on((now, patch) => {
    if ("theme" in patch || "lang" in patch) dress();
    if ("lang" in patch) R.respeak();
    if ("entry" in patch || "lang" in patch) {
      fill();
      describe();
    }
    controls();
    refresh(patch);
  });
  let width = 0;
  let pending = 0;
  new ResizeObserver(([box]) => {
    if (Math.abs(box.contentRect.width - width) < 1) return;
    width = box.contentRect.width;
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => refresh({ size: width }));
  }).observe(panelArea);

  fill();
  describe();
  controls();
  width = panelArea.getBoundingClientRect().width;
  // the tools beside it take room too
  new ResizeObserver(clamp).observe(title);
  R.ready = Promise.resolve(refresh({})).then(R.frame).then(() => {
    performance.mark("regard-first-paint");
    document.documentElement.dataset.ready = "1";
  });
})();
