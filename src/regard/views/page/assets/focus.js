// the keyboard stays where it was when a view is built again: what had it is found again by its name or its place
(() => {
  let kept = null;
  const first = (one) => (one.getAttribute("class") || "").split(" ")[0];
  const like = (one) => one.tagName.toLowerCase() + (first(one) ? "." + CSS.escape(first(one)) : "");
  const number = (one) => one.dataset.id ?? one.dataset.index;

  function remember(one) {
    const around = one.parentElement && one.parentElement.closest("[id]");
    const twins = around ? [...around.querySelectorAll(like(one))] : [];
    return { one, id: one.id, around: around && around.id, like: like(one), number: number(one), place: twins.indexOf(one) };
  }
  function find({ one, id, around, like: kind, number: own, place }) {
    if (one.isConnected) return one;
    if (id && document.getElementById(id)) return document.getElementById(id);
    const frame = (around && document.getElementById(around)) || document.querySelector("[role=tabpanel]:not([hidden])");
    const twins = frame ? [...frame.querySelectorAll(kind)] : [];
    return (own !== undefined && twins.find((twin) => number(twin) === own)) || twins[Math.min(place, twins.length - 1)]
      || document.getElementById("regard-main");
  }
  document.addEventListener("focusin", (event) => {
    // a dialog gives the keyboard back by itself
    if (!event.target.closest("dialog")) kept = remember(event.target);
  });
  new MutationObserver((records) => {
    const lost = document.activeElement === document.body || !document.activeElement;
    if (!kept || !lost) return;
    const gone = (node) => node === kept.one || node.contains(kept.one);
    // whoever puts the keyboard down by a click takes nothing away
    if (!records.some((record) => [...record.removedNodes].some(gone))) return;
    const twin = find(kept);
    if (twin) twin.focus({ preventScroll: true });
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
