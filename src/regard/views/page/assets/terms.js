// Terms: what a word of the field means, for whoever points at it, reaches it by Tab or taps it.
(() => {
  const { el, say } = R;
  R.terms = [
    "token", "query", "key", "weight", "head", "cross", "pooling", "sink", "entropy", "first", "local", "distance", "received",
    "mask", "log", "pin", "terms", "check", "variation",
  ];
  // what a reader aloud is told; what is seen is one box for all of them
  const texts = R.terms.map((name) => say(el("span", { id: "term-" + name }), "term." + name));
  const box = el("div", { class: "tip", id: "regard-tip", role: "tooltip", hidden: true });
  let owner = null;
  let timer = 0;

  // an element that is there for something else, and has an explanation as well
  R.explain = (element, name) => {
    element.dataset.term = name;
    element.setAttribute("aria-describedby", "term-" + name);
    return element;
  };
  // no element that is a button breaks like the words around it
  R.term = (word, name) => R.explain(el("span", { class: "term", role: "button", tabindex: "0" }, word), name);

  function show(element) {
    clearTimeout(timer);
    owner = element;
    box.textContent = R.t("term." + element.dataset.term);
    box.hidden = false;
    const own = element.getBoundingClientRect();
    const { width, height } = box.getBoundingClientRect();
    const room = document.documentElement.clientWidth - 8;
    const below = own.bottom + height + 4 <= window.innerHeight;
    box.style.left = Math.max(8, Math.min(own.left, room - width)) + "px";
    box.style.top = (below ? own.bottom + 2 : Math.max(0, own.top - height - 2)) + "px";
  }
  function hide() {
    clearTimeout(timer);
    owner = null;
    box.hidden = true;
  }
  const termOf = (event) => event.target.closest && event.target.closest("[data-term]");
  document.addEventListener("pointerover", (event) => {
    if (box.contains(event.target)) return clearTimeout(timer);
    const term = event.pointerType === "touch" ? null : termOf(event);
    if (term && term !== owner) show(term);
    else if (term) clearTimeout(timer);
    // on the way to the box, to read or copy it, there is time; where the keyboard is, it stays
    else if (owner && owner !== document.activeElement) timer = setTimeout(hide, 200);
  });
  document.addEventListener("focusin", (event) => {
    const term = termOf(event);
    if (term && term.matches(":focus-visible")) show(term);
    else if (term !== owner) hide();
  });
  document.addEventListener("focusout", () => owner && hide());
  document.addEventListener("click", (event) => {
    const term = termOf(event);
    if (term && term.classList.contains("term")) show(term);
    else if (!box.contains(event.target)) hide();
  });
  document.addEventListener("keydown", (event) => {
    const pressed = [" ", "Enter"].includes(event.key) && event.target.matches && event.target.matches(".term");
    if (pressed) show(event.target);
    else if (event.key === "Escape" && !box.hidden) hide();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  window.addEventListener("scroll", () => !box.hidden && hide(), { capture: true, passive: true });
  R.on((state, patch) => void ("lang" in patch && hide()));
  document.body.append(el("div", { hidden: true }, texts), box);
})();
