"use strict";
(() => {
  // What only scripts read is compressed. Browsers of before 2023 may not unpack it.
  const unpacks = "DecompressionStream" in window;
  const packed = (id) =>
    new Blob([Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0))]);
  const plain = (id) => new Response(packed(id).stream().pipeThrough(new DecompressionStream("gzip")));
  const ready = unpacks && Promise.all([
    plain("charts").json(), plain("library").text().then((code) => (0, eval)(code)),
  ]);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // Okabe and Ito's colours, which the colour-blind tell apart, the faint ones last.
  const palette = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#b8a21b",
    "#6a51a3", "#a65628"];
  const atNight = { "#0072b2": "#2a86cc", "#56b4e9": "#8fd0f5", "#6a51a3": "#a08be0" }; // those too dim or too alike
  const canvasFrom = 400; // marks; fewer are drawn as SVG

  const isNight = () => dark.matches && !root.classList.contains("printing");

  function config() {
    const night = isNight();
    const style = getComputedStyle(root);
    const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
    const font = style.getPropertyValue("--font").trim();
    return {
      background: null, font, view: { stroke: null },
      axis: { labelColor: soft, titleColor: soft, gridColor: line, domain: false, ticks: false, labelPadding: 6,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 170 },
      axisY: { grid: false, labelColor: ink }, axisX: { tickCount: 6, labelOverlap: true, titleAnchor: "end" },
      legend: { labelColor: ink, titleColor: soft, labelFontSize: 12, symbolStrokeWidth: 0, labelLimit: 140 },
      range: {
        category: night ? palette.map((colour) => atNight[colour] ?? colour) : palette,
        heatmap: night ? ["#1b2229", "#1f6aa5"] : ["#f5f7f9", "#9ecae1", "#08519c"],
      },
      params: [{ name: "ink", value: ink }, { name: "soft", value: soft }, { name: "bright", value: night ? ink : "#fff" }],
      text: { fontSize: 12, font }, rule: { color: soft }, header: { labelColor: soft, titleColor: soft },
    };
  }

  async function draw(figure, printing = false) {
    const target = figure.querySelector(".drawing");
    if (!unpacks) {
      target.textContent = "This browser is too old to draw it; the table below has the same figures.";
      figure.dataset.state = "drawn";
      return;
    }
    figure.dataset.state = "drawing";
    const [{ charts, rows }] = await ready;
    const chosen = charts[figure.dataset.chart][figure.dataset.variant];
    const spec = { ...chosen, datasets: Object.fromEntries(chosen.datasets.map((name) => [name, rows[name]])) };
    const many = chosen.datasets.some((name) => rows[name].length > canvasFrom);
    const theme = isNight() ? "dark" : "light";
    await vegaEmbed(target, spec, {
      mode: "vega-lite", renderer: many && !printing ? "canvas" : "svg", config: config(), tooltip: { theme },
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
    root.classList.add("printing"); // paper is white, whatever the screen is
    drawAll(true);
  });
  addEventListener("afterprint", () => {
    opened.forEach((each) => { each.open = false; });
    root.classList.remove("printing");
  });
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

  const download = document.getElementById("download");
  if (!unpacks) download.textContent = "Download the raw data (JSON in gzip: this browser cannot unpack it)";
  download.addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(unpacks ? await plain("data").blob() : packed("data"));
    link.download = unpacks ? "tilewright-report.json" : "tilewright-report.json.gz";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
