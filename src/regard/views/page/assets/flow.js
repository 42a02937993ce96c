// A flow of tokens: lines are laid out from measured widths, and only those that can be seen are elements.
(() => {
  const kit = R.kit;
  // tokens in the document at once, over all flows of a view: with its controls a view stays under 400 elements
  const MOST = 320;
  const NO_WIDTH = 26; // narrowest token, so that one-character tokens can be hit with a finger

  kit.flow = ({ id, share = 1, pick, hover, leave }) => {
    const most = Math.floor(MOST * share);
    const space = R.el("div", { class: "flow-space", role: "presentation" });
    const box = R.el("div", { class: "flow", id, role: "listbox", tabindex: "0" }, space);
    const widths = new Map();
    const pen = document.createElement("canvas").getContext("2d");
    let items = []; // {from, to, text, bare: without the space around it, raw}
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
        // where tokens are joined, each is a word: no mark tells where one begins
        const whole = groups.length < labels.length;
        box.setAttribute("aria-label", name);
        box.dir = kit.direction(side);
        items = groups.map(([from, to]) => {
          if (to - from === 1) {
            const bare = R.bare(side, from);
            return { from, to, text: whole ? bare : R.label(side, from), bare, raw: kit.text(side, from) };
          }
          let [text, raw] = ["", ""];
          for (let k = from; k < to; k += 1) {
            if (!kit.mark(side, k)) text += labels[k];
            raw += kit.text(side, k);
          }
          const bare = R.visible(text.trim()) || R.label(side, from);
          return { from, to, text: bare, bare, raw };
        });
        // what was painted was of other tokens
        paint = () => ({});
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
