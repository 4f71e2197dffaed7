"use strict";
// Explanations stay within the window and out of scrolled tables, and Escape hides them.
(() => {
  const place = (event) => {
    const subject = event.target.closest?.(".explained");
    if (!subject) return;
    // What Escape hid under a resting mouse shows again when the keyboard reaches it.
    if (event.type === "focusin") subject.classList.remove("dismissed");
    const tip = subject.querySelector(".tip"), at = subject.getBoundingClientRect();
    tip.style.position = "fixed";
    tip.style.left = "0px";
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
    tip.style.top = `${at.bottom + height > window.innerHeight ? Math.max(0, at.top - height) : at.bottom}px`;
  };
  document.addEventListener("mouseover", place);
  document.addEventListener("focusin", place);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const one of document.querySelectorAll(".explained:hover, .explained:focus-within")) one.classList.add("dismissed");
  });
  for (const over of ["mouseout", "focusout"]) {
    document.addEventListener(over, (event) => {
      const one = event.target.closest?.(".explained");
      if (one && !one.contains(event.relatedTarget)) one.classList.remove("dismissed");
    });
  }
})();
// Buttons that copy a text; without a clipboard (HTTP on another machine) they stay hidden.
(() => {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    });
  }
})();
// Draws the charts of a page, and redraws them after a swap or a change of the window or the colour scheme.
(() => {
  if (!window.echarts) return;
  const drawn = new Map();
  const GI = 2 ** 30, MI = 2 ** 20;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // The step and suffix of a unit.
  const scale = (unit, top) => {
    if (unit === "cpu") return top >= 10000 ? [1000, " cores"] : [1, "m"];
    return top >= GI ? [GI, " Gi"] : [MI, " Mi"];
  };
  const amount = (value, suffix) =>
    value === null || value === undefined ? "–" : `${value.toLocaleString("en", { maximumFractionDigits: suffix === "m" ? 0 : 2 })}${suffix}`;
  const clock = (at, withDay) => {
    const text = new Date(at).toISOString();
    return withDay ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, 16);
  };
  const MARKS = { kill: ["red", "diamond"], evict: ["amber", "triangle"], resize: ["accent", "circle"] };

  const options = (chart) => {
    const soft = colour("soft");
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const span = chart.times[chart.times.length - 1] - chart.times[0];
    const top = Math.max(...chart.lines.flatMap((line) => line.values.filter((value) => value !== null)), 1);
    const [step, suffix] = scale(chart.unit, top);
    const series = chart.lines.map((line) => ({
      name: line.name,
      type: "line",
      showSymbol: false,
      step: line.step ? "end" : false,
      data: chart.times.map((at, place) => [at, line.values[place] === null ? null : line.values[place] / step]),
      color: colour(`line-${line.role}`),
      lineStyle: { width: line.area ? 1.5 : 2, type: ["base", "peak"].includes(line.role) ? "dashed" : "solid" },
      areaStyle: line.area ? { opacity: 0.16 } : undefined,
      emphasis: { disabled: true },
    }));
    for (const kind of Object.keys(MARKS)) {
      const events = chart.events.filter((event) => event.kind === kind && event.at >= chart.times[0]);
      if (events.length) {
        series.push({
          name: kind, type: "scatter", symbol: MARKS[kind][1], symbolSize: kind === "kill" ? 13 : 9, z: kind === "kill" ? 4 : 3, color: colour(MARKS[kind][0]),
          data: events.map((event) => ({ value: [Math.min(event.at, chart.times[chart.times.length - 1]), (top / step) * 1.08], title: event.label })),
        });
      }
    }
    return {
      animation: !still && !drawn.size,
      grid: { left: 8, right: 12, top: 14, bottom: series.length > 4 ? 52 : 32, containLabel: true },
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      legend: { bottom: 0, left: 0, icon: "roundRect", itemWidth: 12, itemHeight: 4, textStyle: { color: soft, fontSize: 12 } },
      tooltip: {
        trigger: "axis", renderMode: "richText", confine: true,
        backgroundColor: colour("card"), borderColor: colour("line"), textStyle: { color: colour("ink"), fontSize: 12 },
        formatter: (points) => [
          `${clock(points[0].axisValue, true)} UTC`,
          ...points.map((point) => (point.data.title ? `● ${point.data.title}` : `${point.seriesName}  ${amount(point.value[1], suffix)}`)),
        ].join("\n"),
      },
      xAxis: {
        type: "time", axisLine: { lineStyle: { color: colour("line") } }, axisTick: { show: false }, splitNumber: 5,
        axisLabel: { color: soft, hideOverlap: true, formatter: (at) => clock(at, span > 2 * 86400e3).slice(0, span > 2 * 86400e3 ? 5 : undefined) },
      },
      yAxis: {
        type: "value", min: 0, splitNumber: 4, splitLine: { lineStyle: { color: colour("line") } },
        axisLabel: { color: soft, formatter: (value) => amount(value, suffix) },
      },
      series,
    };
  };

  const draw = () => {
    for (const [place, chart] of drawn) {
      if (!place.isConnected) { chart.dispose(); drawn.delete(place); }
    }
    for (const place of document.querySelectorAll("[data-chart]")) {
      if (drawn.has(place)) continue;
      place.classList.add("on");
      const chart = window.echarts.init(place, null, { renderer: "canvas" });
      chart.setOption(options(JSON.parse(place.dataset.chart)));
      drawn.set(place, chart);
    }
  };
  const again = () => {
    for (const [place, chart] of drawn) chart.setOption(options(JSON.parse(place.dataset.chart)), true);
  };
  draw();
  document.body.addEventListener("htmx:afterSettle", draw);
  window.addEventListener("resize", () => drawn.forEach((chart) => chart.resize()));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
