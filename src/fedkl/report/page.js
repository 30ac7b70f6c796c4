// Values under the pointer, buttons that copy, and a word where something is wider than the screen. Without this script the page only lacks these.
(function () {
  "use strict";
  const NS = "http://www.w3.org/2000/svg";

  function place(axis, from, to, value) {
    const log = axis[2] === "log";
    const [low, high, at] = [axis[0], axis[1], value].map((v) => (log ? Math.log10(v) : v));
    return axis[2] === "symlog" ? NaN : from + ((at - low) / (high - low)) * (to - from);
  }

  function nearest(xs, x) {
    let best = 0;
    xs.forEach((other, i) => {
      if (Math.abs(other - x) < Math.abs(xs[best] - x)) best = i;
    });
    return best;
  }

  function words(value) {
    return value === null || value === undefined ? "–" : String(value).replace("-", "\u2212");
  }

  function follow(figure, data) {
    const svg = figure.querySelector("svg");
    const view = svg.viewBox.baseVal;
    const marks = svg.appendChild(document.createElementNS(NS, "g"));
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    svg.parentNode.appendChild(tip);
    let chosen = null;

    function hide() {
      marks.replaceChildren();
      tip.hidden = true;
      chosen = null;
    }

    function show(panel, x) {
      const [left, top, right, bottom] = panel.box;
      const xs = panel.lines.map((n) => data.lines[n].x);
      const first = xs[0][nearest(xs[0], x)];
      const across = place(panel.x, left, right, first);
      marks.replaceChildren();
      const cursor = document.createElementNS(NS, "line");
      for (const [name, at] of [["x1", across], ["x2", across], ["y1", top], ["y2", bottom]]) {
        cursor.setAttribute(name, at);
      }
      cursor.setAttribute("class", "cursor");
      marks.appendChild(cursor);
      tip.replaceChildren();
      const head = document.createElement("strong");
      head.textContent = (panel.label === "round" ? "round " : "") + words(first);
      tip.appendChild(head);
      panel.lines.forEach((n, i) => {
        const line = data.lines[n];
        const at = nearest(xs[i], first);
        const row = document.createElement("span");
        const chip = document.createElement("i");
        chip.style.background = line.colour;
        const interval = line.low ? " [" + words(line.low[at]) + ", " + words(line.high[at]) + "]" : "";
        row.append(chip, line.name + " " + words(line.y[at]) + interval);
        tip.appendChild(row);
        const up = place(panel.y, bottom, top, line.y[at]);
        if (line.y[at] !== null && up >= top && bottom >= up) {
          const dot = document.createElementNS(NS, "circle");
          dot.setAttribute("cx", place(panel.x, left, right, xs[i][at]));
          dot.setAttribute("cy", up);
          dot.setAttribute("r", 3);
          dot.style.fill = line.colour;
          marks.appendChild(dot);
        }
      });
      tip.hidden = false;
      const scale = svg.getBoundingClientRect().width / view.width;
      const room = svg.parentNode.clientWidth - tip.offsetWidth;
      const beside = across * scale + 12;
      const other = across * scale - 12 - tip.offsetWidth;
      tip.style.left = Math.max(0, beside > room && other >= 0 ? other : Math.min(beside, room)) + "px";
      tip.style.top = top * scale + "px";
      chosen = { panel: panel, at: nearest(xs[0], first) };
    }

    function point(event) {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) * view.width) / box.width;
      const y = ((event.clientY - box.top) * view.height) / box.height;
      const panel = data.panels.find(
        (p) => x >= p.box[0] - 4 && p.box[2] + 4 >= x && y >= p.box[1] && p.box[3] >= y,
      );
      if (!panel) return hide();
      const share = (x - panel.box[0]) / (panel.box[2] - panel.box[0]);
      show(panel, panel.x[0] + share * (panel.x[1] - panel.x[0]));
    }

    function key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const panel = chosen ? chosen.panel : data.panels[0];
      const xs = data.lines[panel.lines[0]].x;
      const at = chosen ? chosen.at + step : xs.length - 1;
      show(panel, xs[Math.min(Math.max(at, 0), xs.length - 1)]);
    }

    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("keydown", key);
    svg.addEventListener("blur", hide);
  }

  function copies(pre) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      const range = document.createRange();
      range.selectNodeContents(pre.querySelector("code"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      // Where the page may not write to the clipboard, what is to be copied is selected.
      if (navigator.clipboard) {
        navigator.clipboard.writeText(range.toString()).then(
          () => { button.textContent = "Copied"; },
          () => { button.textContent = "Selected"; },
        );
      }
    });
    pre.appendChild(button);
  }

  for (const source of document.querySelectorAll("script.values")) {
    follow(source.closest("figure"), JSON.parse(source.textContent));
  }
  document.querySelectorAll("pre").forEach(copies);
  const watch = new ResizeObserver((changes) => {
    for (const { target } of changes) {
      target.classList.toggle("wider", target.scrollWidth > target.clientWidth + 1);
    }
  });
  document.querySelectorAll(".scroll").forEach((area) => watch.observe(area));
})();
