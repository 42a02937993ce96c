// colours, norms, canvases, and binned pictures of maps
(() => {
  const cividis =
    "00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838";
  // blue for less, orange for more; the middle is the page's own paper so that zero recedes
  const lightEnds = "0b4f8a 2f7fc1 79b3e0 c3dcf0 f6f6f4 fbd9b0 f2a95a d97a15 8f4a00";
  const darkEnds = "8cc8ff 4f9fe0 2c6ca8 1d4468 1b1e24 5b3c17 9c6118 e09030 ffc87a";

  function ramp(stops) {
    const colours = stops.split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    const table = new Uint8ClampedArray(256 * 3);
    for (let step = 0; step < 256; step++) {
      const place = (step / 255) * (colours.length - 1);
      const low = Math.min(Math.floor(place), colours.length - 2);
      for (let c = 0; c < 3; c++) {
        table[3 * step + c] = colours[low][c] + (place - low) * (colours[low + 1][c] - colours[low][c]);
      }
    }
    return table;
  }
  const sequential = ramp(cividis);
  const diverging = { light: ramp(lightEnds), dark: ramp(darkEnds) };
  const theme = () => document.documentElement.dataset.theme || "light";
  R.ramp = (kind) => (kind === "diverge" ? diverging[theme()] : sequential);
  const step = (x) => Math.round(255 * Math.min(Math.max(x || 0, 0), 1));
  const css = (table, at) => `rgb(${table[3 * at]}, ${table[3 * at + 1]}, ${table[3 * at + 2]})`;
  R.colour = (x) => css(sequential, step(x));
  R.diverge = (x) => css(R.ramp("diverge"), step((x + 1) / 2));
  // cividis passes the grey at which black and white read equally well near its middle
  R.ink = (x) => (x > 0.464 ? "#000000" : "#ffffff");
  R.tint = (x) => {
    const strength = Math.min(Math.max(x || 0, 0), 1);
    return theme() === "dark" ? `rgba(240, 200, 80, ${0.5 * strength})` : `rgba(245, 190, 40, ${0.85 * strength})`;
  };
  R.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- norms: one function from weight to 0..1, with the numbers its legend prints ----
  R.niceAbove = (x) => {
    if (!(x > 0)) return 1;
    const unit = 10 ** Math.floor(Math.log10(x));
    return [1, 2, 5, 10].find((factor) => factor * unit >= x * 0.999) * unit;
  };
  R.norm = (top, log, decades = 4) => {
    const high = R.niceAbove(top);
    if (!log) {
      return { high, low: 0, log, ticks: [0, 0.25, 0.5, 0.75, 1].map((t) => [t, t * high]), of: (x) => x / high };
    }
    const low = high * 10 ** -decades;
    const ticks = [];
    for (let power = 0; power <= decades; power++) ticks.push([power / decades, low * 10 ** power]);
    const factor = 1 / (decades * Math.LN10);
    return { high, low, log, ticks, of: (x) => (x <= low ? 0 : Math.log(x / low) * factor) };
  };
  R.signedNorm = (top) => {
    const high = R.niceAbove(top);
    const ticks = [-1, -0.5, 0, 0.5, 1].map((t) => [(t + 1) / 2, t * high]);
    return { high, low: -high, log: false, ticks, of: (x) => (x / high + 1) / 2 };
  };

  // ---- canvases ----
  R.canvas = (canvas, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.width = width + "px";
      canvas.style.height = height + "px";
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  };
  R.font = (size = 12) => `${size}px ${R.css("--font") || "sans-serif"}`;
  R.clip = (context, text, width) => {
    // a token may be thousands of signs long
    const signs = Array.from(text.slice(0, 256)).slice(0, 96);
    if (signs.length * 2 >= text.length && context.measureText(text).width <= width) return text;
    while (signs.length > 1 && context.measureText(signs.join("") + "…").width > width) signs.pop();
    return signs.join("") + "…";
  };
  // a masked cell; NaN is something else: a weight that is no number
  R.masked = -Infinity;
  // values as pixels; what has no number stays clear, so that what lies below (the hatch) shows through
  R.picture = (values, rows, cols, norm, kind = "sequential") => {
    const table = R.ramp(kind);
    const canvas = document.createElement("canvas");
    canvas.width = cols;
    canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(cols, rows);
    const pixels = image.data;
    for (let at = 0; at < rows * cols; at++) {
      const value = values[at];
      if (!Number.isFinite(value)) continue;
      const from = 3 * step(norm.of(value));
      pixels[4 * at] = table[from];
      pixels[4 * at + 1] = table[from + 1];
      pixels[4 * at + 2] = table[from + 2];
      pixels[4 * at + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return canvas;
  };
  const tiles = {};
  function pattern(context, name, paper, ink, lines) {
    const mark = name + theme();
    if (!tiles[mark]) {
      const tile = (tiles[mark] = document.createElement("canvas"));
      tile.width = tile.height = 8;
      const pen = tile.getContext("2d");
      pen.fillStyle = paper;
      pen.fillRect(0, 0, 8, 8);
      pen.strokeStyle = ink;
      pen.lineWidth = 1.2;
      pen.beginPath();
      for (const [x, y, right, bottom] of lines) {
        pen.moveTo(x, y);
        pen.lineTo(right, bottom);
      }
      pen.stroke();
    }
    return context.createPattern(tiles[mark], "repeat");
  }
  R.hatch = (context, x, y, width, height) => {
    const lines = [-8, 0, 8].map((shift) => [shift - 1, 9, shift + 9, -1]);
    context.fillStyle = pattern(context, "hatch", R.css("--panel"), R.css("--line"), lines);
    context.fillRect(x, y, width, height);
  };
  // grey is a colour of the ramp too, so crosses lie on it
  R.crosses = (context) =>
    pattern(context, "void", "#b9b9bd", "#2a2a2e", [[2, 2, 6, 6], [6, 2, 2, 6]]);
  // a thumbnail's bytes hold no NaN: in a head with NaN, a row of nothing is such a row
  R.emptied = (id, row) => R.broken(id) && !row.some(Boolean);
  R.isVoid = (value) => !Number.isFinite(value) && value !== R.masked;
  R.voids = (context, cells, rows, cols, [x, y, width, height]) => {
    context.fillStyle = R.crosses(context);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < cols; c++) {
        const from = c;
        while (c < cols && R.isVoid(cells[r * cols + c])) c++;
        const [wide, high] = [width / cols, height / rows];
        if (c > from) context.fillRect(x + from * wide, y + r * high, (c - from) * wide, high);
      }
    }
  };
  R.legend = (canvas, norm, kind = "sequential", width = 240) => {
    const context = R.canvas(canvas, width, 30);
    const table = R.ramp(kind);
    const left = 24, span = width - 48;
    for (let x = 0; x < span; x++) {
      context.fillStyle = css(table, step(x / (span - 1)));
      context.fillRect(left + x, 0, 1.5, 10);
    }
    context.fillStyle = R.css("--quiet");
    context.font = R.font(11);
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const [place, value] of norm.ticks) {
      const first = place === 0 && norm.log ? "≤" : "";
      context.fillRect(left + place * (span - 1), 10, 1, 3);
      context.fillText(first + R.number(value), left + place * (span - 1), 16);
    }
    canvas.setAttribute("aria-label", R.t("legend.text", { low: R.number(norm.low), high: R.number(norm.high) }));
    canvas.setAttribute("role", "img");
  };

  // after the next frame; a page that is not on screen gets none, and goes on all the same
  R.frame = () => new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve, 0));
    setTimeout(resolve, 250);
  });

  // ---- long work in short slices, so that the page always answers ----
  R.slice = (work, each = 8) => {
    let stopped = false;
    const promise = new Promise((resolve, reject) => {
      function go() {
        if (stopped) return resolve(null);
        const end = performance.now() + each;
        try {
          for (;;) {
            const { done, value } = work.next();
            // what follows is a task of its own
            if (done) return setTimeout(resolve, 0, value);
            if (performance.now() > end) break;
          }
        } catch (error) {
          return reject(error);
        }
        setTimeout(go, 0);
      }
      go();
    });
    return { promise, cancel: () => void (stopped = true) };
  };

  // ---- maps as densities: the mean weight of a pair in each cell, so that every zoom has one unit ----
  const extent = (count, size, total) =>
    Float32Array.from({ length: count }, (_, at) => Math.min(size, total - at * size));
  R.coarse = async (id) => {
    const entry = R.entry(id);
    const name = R.detailed(id) ? "map" : "thumb";
    const values = await R.blob(entry.blobs[name]);
    const [rows, cols] = R.shape(entry.blobs[name]);
    const width = name === "map" ? entry.width : [Math.ceil(entry.n / rows), Math.ceil(entry.m / cols)];
    // a map holds sums over its blocks, a thumbnail means over the rows of its blocks
    const down = name === "map" ? extent(rows, width[0], entry.n) : new Float32Array(rows).fill(1);
    const across = extent(cols, width[1], entry.m);
    const cells = new Float32Array(rows * cols);
    let most = 0;
    for (let r = 0; r < rows; r++) {
      const empty = name === "thumb" && R.emptied(id, values.subarray(r * cols, (r + 1) * cols));
      for (let c = 0; c < cols; c++) {
        const density = empty ? NaN : values[r * cols + c] / Math.max(down[r] * across[c], 1);
        cells[r * cols + c] = density;
        if (density > most) most = density;
      }
    }
    return { cells, rows, cols, width, most, name };
  };
})();
