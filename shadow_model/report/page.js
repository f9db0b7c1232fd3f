// Curves that answer to the pointer, tables that sort. Without it the page shows the same, still.
"use strict";
(() => {
  const root = document.documentElement;
  const charts = JSON.parse(document.getElementById("curves").textContent);
  const AXES = { tokens: "training tokens", flops: "training FLOPs", elapsed_s: "hours" };
  const UNITS = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const state = { axis: "tokens", hidden: new Set() };
  let drawn = [];

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const ink = (line) => line.colour || colour(line.arm) || colour("mark");
  const short = (value) => {
    if (value == null) return "–";
    const [size, unit] = UNITS.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
    return `${+(value / size).toPrecision(4)}${unit && ` ${unit}`}`;
  };
  const onAxis = (line) => line[state.axis].map((x) => (state.axis === "elapsed_s" ? x / 3600 : x));

  function series(chart) {
    const lines = chart.lines.filter((line) => line[state.axis].every((x) => x != null));
    const level = chart.level == null ? [] : [chart.level];
    const styles = lines.map((line) => ({
      label: line.label,
      stroke: ink(line),
      width: line.held_out ? 2 : 1,
      alpha: line.held_out ? 1 : 0.5,
      points: { show: line.held_out, size: 7 },
      spanGaps: true,
      show: !state.hidden.has(line.label),
      value: (_, y) => short(y),
    }));
    const tables = lines.map((line) => [onAxis(line), line.values]);
    const data = tables.length ? uPlot.join(tables) : [[0]];
    for (const y of level) {
      data.push(data[0].map(() => y));
      styles.push({ label: "unigram entropy", stroke: colour("muted"), dash: [5, 3],
        points: { show: false }, show: !state.hidden.has("unigram entropy") });
    }
    return [data, styles];
  }

  function marks(u, chart) { // standard errors of the held-out losses, and growth of the loops
    const { ctx } = u, at = (x) => (state.axis === "elapsed_s" ? x / 3600 : x);
    const stroke = (from, to, style, dash) => {
      ctx.save();
      ctx.strokeStyle = style;
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash(dash.map((one) => one * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(...from);
      ctx.lineTo(...to);
      ctx.stroke();
      ctx.restore();
    };
    const { top, height } = u.bbox;
    for (const growth of chart.growths) {
      if (growth[state.axis] == null) continue;
      const x = u.valToPos(at(growth[state.axis]), "x", true);
      stroke([x, top], [x, top + height], colour("mark"), [2, 3]);
    }
    for (const line of chart.lines) {
      if (!line.errors || state.hidden.has(line.label)) continue;
      line.errors.forEach((error, i) => {
        if (line[state.axis][i] == null) return;
        const x = u.valToPos(at(line[state.axis][i]), "x", true);
        const [low, high] = [-error, error].map((e) => u.valToPos(line.values[i] + e, "y", true));
        stroke([x, low], [x, high], ink(line), []);
      });
    }
  }

  function draw(figure, chart) {
    const [data, styles] = series(chart);
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 } };
    const plot = new uPlot({
      width: figure.clientWidth - 2,
      height: 260,
      cursor: { sync: { key: "curves" } },
      scales: { x: { time: false } },
      series: [{ label: AXES[state.axis], value: (_, x) => short(x) }, ...styles],
      axes: [
        { ...axis, label: AXES[state.axis], values: (_, xs) => xs.map(short) },
        { ...axis, label: chart.unit, values: (_, ys) => ys.map(short), size: 62 },
      ],
      hooks: {
        setSeries: [(u, i) => remember(u.series[i])],
        draw: [(u) => marks(u, chart)],
      },
    }, data, figure.querySelector(".live"));
    drawn.push(plot);
  }

  function remember(line) {
    if (!line || !line.label) return;
    state.hidden[line.show ? "delete" : "add"](line.label);
  }

  function redraw() {
    drawn.forEach((plot) => plot.destroy());
    drawn = [];
    for (const figure of document.querySelectorAll("figure[data-curve]")) {
      if (!figure.hidden) draw(figure, charts[figure.dataset.curve]);
    }
  }

  function control(text, kind, value, checked, change) {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), {
      type: kind, name: kind === "radio" ? "axis" : value, value, checked });
    input.addEventListener("change", () => change(input));
    label.append(input, ` ${text}`);
    return label;
  }

  function controls() {
    const bar = document.querySelector(".controls");
    for (const [axis, text] of Object.entries(AXES)) {
      bar.append(control(text, "radio", axis, axis === state.axis, () => {
        state.axis = axis;
        redraw();
      }));
    }
    for (const figure of document.querySelectorAll("figure[data-curve]")) {
      const name = figure.dataset.curve;
      bar.append(control(name, "checkbox", name, true, (input) => {
        figure.hidden = !input.checked;
        redraw();
      }));
    }
    bar.hidden = false;
  }

  const SIZES = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, KiB: 2 ** 10, MiB: 2 ** 20,
    GiB: 2 ** 30, ms: 1e-3, min: 60, h: 3600, d: 86400 };
  function worth(text) { // "1 h 20 min", "2.3 G", "5.61 ± 0.02": what a cell says, as a number
    const parts = [...text.replace(/,/g, "").split("±")[0]
      .matchAll(/([+-−]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z]*)/g)];
    if (!parts.length || !/^[+-−]?\d/.test(text)) return null;
    return parts.reduce((sum, [, n, unit]) =>
      sum + Number(n.replace("−", "-")) * (SIZES[unit.replace(/(FLOPs?|B)$/, "")] ?? SIZES[unit] ?? 1), 0);
  }

  function sortable(head) {
    const table = head.closest("table"), body = table.tBodies[0];
    head.tabIndex = 0;
    head.setAttribute("aria-sort", "none");
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "descending";
      const place = [...head.parentNode.children].indexOf(head);
      table.querySelectorAll("[aria-sort]").forEach((one) => one.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const keyed = [...body.rows].map((row) => [row.cells[place].textContent.trim(), row]);
      keyed.sort(([a], [b]) => {
        const [x, y] = [worth(a), worth(b)];
        const order = x != null && y != null ? x - y : a.localeCompare(b);
        return down ? order : -order;
      });
      body.append(...keyed.map(([, row]) => row));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  }

  root.classList.add("js");
  controls();
  redraw();
  let width = innerWidth;
  addEventListener("resize", () => innerWidth !== width && ((width = innerWidth), redraw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  for (const table of document.querySelectorAll("table")) {
    if (table.tHead?.rows.length === 1 && table.tBodies[0]?.rows.length > 1) {
      [...table.tHead.rows[0].cells].forEach(sortable);
    }
  }
})();
