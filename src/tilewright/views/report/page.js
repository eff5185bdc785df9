"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // Okabe and Ito's colours, which the colour-blind tell apart, the faint ones last.
  const palette = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#b8a21b",
    "#6a51a3", "#a65628"];
  const canvasFrom = 400; // marks; fewer are drawn as SVG

  function config(printing) {
    const night = dark.matches && !printing;
    const style = getComputedStyle(document.documentElement);
    const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
    const font = style.getPropertyValue("--font").trim();
    return {
      background: null, font, view: { stroke: null },
      axis: { labelColor: soft, titleColor: soft, gridColor: line, domain: false, ticks: false, labelPadding: 6,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 170 },
      axisY: { grid: false, labelColor: ink }, axisX: { tickCount: 6, labelOverlap: true, titleAnchor: "end" },
      legend: { labelColor: ink, titleColor: soft, labelFontSize: 12, symbolStrokeWidth: 0, labelLimit: 140 },
      range: { category: night ? ["#4ba3e3", ...palette.slice(1)] : palette },
      text: { fontSize: 12, font }, rule: { color: soft }, header: { labelColor: soft, titleColor: soft },
    };
  }

  async function draw(figure, printing = false) {
    const variants = charts[figure.dataset.chart];
    const spec = variants[figure.dataset.variant];
    const target = figure.querySelector(".drawing");
    figure.dataset.state = "drawing";
    const many = ((spec.data && spec.data.values) || []).length > canvasFrom;
    const theme = dark.matches && !printing ? "dark" : "light";
    await vegaEmbed(target, spec, {
      mode: "vega-lite", renderer: many && !printing ? "canvas" : "svg", config: config(printing), tooltip: { theme },
      actions: { export: true, source: false, compiled: false, editor: false },
    });
    figure.dataset.state = "drawn";
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const drawAll = (printing) =>
    Promise.all(figures.filter((each) => printing || !each.dataset.state).map((each) => draw(each, printing)));
  // Charts are drawn when they come near the screen, so that a long page opens and scrolls at once.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) {
        near.unobserve(target);
        if (!target.dataset.state) draw(target);
      }
    }
  }, { rootMargin: "500px" });
  if (location.hash === "#all") drawAll(true); else figures.forEach((each) => near.observe(each));
  // What is folded is printed: the reader of paper cannot open it.
  const folded = [...document.querySelectorAll("details.fold")];
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = folded.filter((each) => !each.open);
    opened.forEach((each) => { each.open = true; });
    drawAll(true);
  });
  addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));
  const redraw = () => figures.filter((each) => each.dataset.state).forEach((each) => draw(each));
  addEventListener("afterprint", redraw);
  dark.addEventListener("change", redraw);

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button === null) return;
    if (button.parentElement.matches(".choices")) {
      for (const other of button.parentElement.children) other.setAttribute("aria-pressed", other === button);
      const figure = button.closest("figure");
      figure.dataset.variant = button.textContent;
      draw(figure);
    } else if (button.parentElement.matches("th")) sort(button.parentElement);
  });

  function sort(head) {
    const body = head.closest("table").tBodies[0];
    const place = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent;
    const empty = (value) => value === "-";
    const compare = (a, b) => {
      if (empty(a) || empty(b)) return empty(a) - empty(b); // what is not there comes last, both ways
      const found = a - b || a.localeCompare(b);
      return down ? -found : found;
    };
    const rows = [...body.rows].map((row) => [key(row), row]).sort(([a], [b]) => compare(a, b));
    body.append(...rows.map(([, row]) => row));
  }

  document.getElementById("download").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([document.getElementById("data").textContent], { type: "application/json" }));
    link.download = "tilewright-report.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
