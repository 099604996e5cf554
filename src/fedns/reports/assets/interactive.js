// Draws the figures of a report from the data beside them. No library, and nothing is fetched.

const DASHES = { "-": "none", "--": "7 4", "-.": "8 3 2 3", ":": "2 3" };
// Relative paths around a point, named as matplotlib names them.
const MARKERS = {
  o: "m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
  s: "m-3.1-3.1h6.2v6.2h-6.2z",
  "^": "m0-4.2 4 7.2h-8z",
  D: "m0-4.4 4.4 4.4-4.4 4.4-4.4-4.4z",
  v: "m0 4.2-4-7.2h8z",
  P: "m-1.4-3.8h2.8v2.4h2.4v2.8h-2.4v2.4h-2.8v-2.4h-2.4v-2.8h2.4z",
  X: "m0-1.9 1.9-1.9 1.9 1.9-1.9 1.9 1.9 1.9-1.9 1.9-1.9-1.9-1.9 1.9-1.9-1.9 1.9-1.9-1.9-1.9 1.9-1.9z",
};
const MOST_ROWS = 8; // of the box with values

function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// One figure, with its buttons and the box with values under the pointer.
class Figure {
  constructor(element) {
    const data = JSON.parse(element.querySelector("script").textContent);
    Object.assign(this, { element, data, against: Object.keys(data.x)[0], hidden: new Set(), column: -1 });
    this.plot = html("div", { class: "plot" });
    this.box = html("div", { class: "values", role: "status", hidden: "" });
    this.switch = html("div", { class: "switch", role: "group", "aria-label": "horizontal axis" });
    this.legend = html("div", { class: "legend", role: "group", "aria-label": "lines" });
  }

  // Takes the place of the picture, without a figure as yet.
  settle() {
    for (const name of Object.keys(this.data.x))
      this.switch.append(this.button(name, () => { this.against = name; }));
    this.data.lines.forEach((line, number) => {
      const button = this.button(line.label, () => { if (!this.hidden.delete(number)) this.hidden.add(number); });
      button.prepend(sample(line));
      this.legend.append(button);
    });
    this.switch.hidden = this.switch.children.length < 2;
    this.element.querySelector(".picture").replaceWith(this.switch, this.plot, this.legend);
    const resized = ([entry]) => { if (Math.round(entry.contentRect.width) !== this.width) this.redraw(); };
    new ResizeObserver(resized).observe(this.plot);
  }

  button(text, action) {
    const button = html("button", { type: "button" }, html("span", {}, text));
    button.addEventListener("click", () => { action(); this.redraw(); });
    return button;
  }

  get shown() {
    return this.data.lines.filter((line, number) => !this.hidden.has(number) && line.x[this.against]);
  }

  redraw(room = this.plot.clientWidth) {
    this.width = room;
    const [width, height] = [Math.max(room, 240), Math.min(420, Math.max(260, room * 0.62))];
    this.measure(width, height);
    const label = `${this.data.title}: ${this.data.y.label} against ${this.data.x[this.against].label}`;
    this.svg = svg("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": label });
    this.cursor = svg("g", { class: "cursor" });
    this.svg.append(this.grid(), ...this.shown.map((line) => this.line(line, this.series.get(line))), this.cursor);
    this.listen();
    this.plot.replaceChildren(this.svg, this.box);
    this.leave();
    for (const button of this.switch.children) button.setAttribute("aria-pressed", button.textContent === this.against);
    [...this.legend.children].forEach((button, number) => {
      button.setAttribute("aria-pressed", !this.hidden.has(number));
      button.disabled = !this.data.lines[number].x[this.against]; // such as bytes of a method that sends nothing
    });
  }

  measure(width, height) {
    const frame = { top: 8, height: height - 8 - 46 };
    const heights = this.shown.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]);
    heights.push(this.data.level);
    this.y = makeAxis(this.data.y, heights, frame.height, Math.max(4, Math.floor(frame.height / 40)));
    frame.left = 32 + 7 * Math.max(1, ...this.y.ticks.map((tick) => tickText(this.data.y, tick).length));
    frame.width = width - frame.left - 20; // half of the last number beside the axis
    const positions = this.shown.flatMap((line) => line.x[this.against]);
    this.x = makeAxis(this.data.x[this.against], positions, frame.width, Math.max(3, Math.floor(frame.width / 60)));
    this.frame = frame;
    this.series = new Map(this.shown.map((line) => [line, this.points(line)]));
    this.all = [...this.series.values()].flat();
    this.columns = [...new Set(this.all.map((point) => point.x))].sort((a, b) => a - b);
  }

  across(value) { return this.frame.left + this.x.at(value); }

  up(value) { return this.frame.top + this.frame.height - this.y.at(value); }

  // The points of a line that have a place on both axes.
  points(line) {
    const { low, high } = line;
    return line.y
      .map((y, n) => ({ line, n, x: line.x[this.against][n], y, low: low && low[n], high: high && high[n] }))
      .filter((point) => this.x.has(point.x) && this.y.has(point.y));
  }

  grid() {
    const { left, top, width, height } = this.frame;
    const [right, bottom, middle] = [left + width, top + height, { "text-anchor": "middle" }];
    const group = svg("g", { class: "axes" });
    for (const tick of this.x.ticks) {
      const x = this.across(tick);
      group.append(svg("path", { class: "grid", d: `M${x} ${top}V${bottom}` }));
      group.append(svg("text", { x, y: bottom + 18, ...middle }, tickText(this.x.scale, tick)));
    }
    for (const tick of this.y.ticks) {
      const y = this.up(tick);
      group.append(svg("path", { class: "grid", d: `M${left} ${y}H${right}` }));
      group.append(svg("text", { x: left - 7, y: y + 4, "text-anchor": "end" }, tickText(this.y.scale, tick)));
    }
    if (this.y.has(this.data.level))
      group.append(svg("path", { class: "level", d: `M${left} ${this.up(this.data.level)}H${right}` }));
    const upright = `translate(13 ${top + height / 2}) rotate(-90)`;
    group.append(
      svg("path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` }),
      svg("text", { class: "x-label", x: left + width / 2, y: bottom + 40, ...middle }, this.x.scale.label),
      svg("text", { class: "y-label", transform: upright, ...middle }, this.y.scale.label),
    );
    return group;
  }

  line(line, points) {
    const place = (p, value) => `${this.across(p.x).toFixed(2)} ${this.up(value).toFixed(2)}`;
    const [first, every] = line.marked;
    const marks = line.marker ? points.filter((p) => p.n % every === first) : [];
    const group = svg("g", { class: "series", color: line.colour });
    if (line.low) {
      // A spread down to zero has no place on a log axis: it reaches the bottom.
      const edge = (p, value) => place(p, this.y.has(value) ? value : value === null ? p.y : this.y.low);
      const around = [...points.map((p) => edge(p, p.high)), ...points.map((p) => edge(p, p.low)).reverse()];
      group.append(svg("path", { class: "band", d: points.length ? `M${around.join("L")}z` : "" }));
    }
    // A point left out interrupts the line.
    const path = points.map((p, n) => (n && points[n - 1].n === p.n - 1 ? "L" : "M") + place(p, p.y)).join("");
    group.append(
      svg("path", { class: "line", d: path, "stroke-dasharray": DASHES[line.dash] }),
      svg("path", { class: "marks", d: marks.map((p) => `M${place(p, p.y)}${MARKERS[line.marker]}`).join("") }),
    );
    return group;
  }

  listen() {
    for (const kind of ["pointermove", "pointerdown"]) this.svg.addEventListener(kind, (event) => this.point(event));
    // A finger leaves when it is lifted, which is when the values are read; they go when something else is touched.
    this.svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.leave(); });
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("focus", () => { if (this.svg.matches(":focus-visible")) this.show(0); });
    this.svg.addEventListener("keydown", (event) => {
      const last = this.columns.length - 1;
      const to = { ArrowLeft: this.column - 1, ArrowRight: this.column + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") this.leave();
      if (to === undefined) return;
      event.preventDefault();
      this.show(Math.min(Math.max(to, 0), last));
    });
  }

  point(event) {
    const place = this.svg.getBoundingClientRect();
    const [x, y] = [event.clientX - place.left, event.clientY - place.top];
    let [nearest, distance] = [null, Infinity];
    for (const point of this.all) {
      // Sideways counts more: people follow a column, and look up and down in it.
      const away = Math.hypot(3 * (this.across(point.x) - x), this.up(point.y) - y);
      if (away < distance) [nearest, distance] = [point, away];
    }
    if (nearest) this.show(this.columns.indexOf(nearest.x), nearest);
  }

  // The values in a column: all lines there are, or those nearest to the chosen point where there are many.
  show(column, chosen = null) {
    const x = this.columns[column];
    const found = this.shown.map((line) => (chosen && chosen.line === line ? chosen : this.beside(line, x))).filter(Boolean);
    if (!found.length) return;
    this.column = column;
    const main = chosen || found[0];
    const away = (p) => Math.abs(this.y.at(p.y) - this.y.at(main.y));
    const listed = found.sort((a, b) => away(a) - away(b)).slice(0, MOST_ROWS).sort((a, b) => b.y - a.y);
    const { top, height } = this.frame;
    const ring = (p) => ({ cx: this.across(p.x), cy: this.up(p.y), r: p === chosen ? 6 : 4.5, color: p.line.colour });
    this.cursor.replaceChildren(
      svg("path", { class: "guide", d: `M${this.across(x)} ${top}v${height}` }),
      ...listed.map((p) => svg("circle", ring(p))),
    );
    this.box.replaceChildren(
      html("p", {}, `${this.x.scale.label}: ${valueText(this.x.scale, x)}`),
      html("table", {}, ...listed.map((p) => this.row(p, x, p === chosen))),
      ...(found.length > listed.length ? [html("p", {}, `and ${found.length - listed.length} more`)] : []),
    );
    this.box.hidden = false;
    this.place(this.across(x), this.up(main.y));
  }

  // Beside the column, and in the half of the plot where the point is not.
  place(x, y) {
    const { top, height } = this.frame;
    const [across, down] = [this.plot.clientWidth - this.box.offsetWidth, top + height - 8 - this.box.offsetHeight];
    const left = x + 14 <= across ? x + 14 : x - 14 - this.box.offsetWidth;
    this.box.style.left = `${Math.max(0, Math.min(left, across))}px`;
    this.box.style.top = `${y > top + height / 2 ? 4 : Math.max(4, down)}px`;
  }

  // The point of a line nearest to x, as long as the line reaches that far.
  beside(line, x) {
    const points = this.series.get(line);
    const away = (point) => Math.abs(this.x.at(point.x) - this.x.at(x));
    if (!points.some((p) => p.x <= x) || !points.some((p) => p.x >= x)) return null;
    return points.reduce((a, b) => (away(b) < away(a) ? b : a));
  }

  row(point, x, chosen) {
    const { line, low, high } = point;
    const text = (value) => valueText(this.y.scale, value);
    const spread = low !== null && high !== null && low !== high ? ` (${text(low)} to ${text(high)})` : "";
    const aside = point.x === x ? "" : ` at ${valueText(this.x.scale, point.x)}`;
    const name = html("th", {}, html("span", { class: "dot", style: `background: ${line.colour}` }), line.label);
    const value = html("td", {}, html("span", {}, text(point.y)), html("small", {}, spread + aside));
    return html("tr", chosen ? { class: "chosen" } : {}, name, value);
  }

  leave() {
    this.column = -1;
    this.box.hidden = true;
    this.cursor.replaceChildren();
  }
}

// A short piece of a line, for the legend.
function sample(line) {
  return svg("svg", { viewBox: "0 0 30 12", color: line.colour, "aria-hidden": "true" },
    svg("path", { class: "line", d: "M1 6H29", "stroke-dasharray": DASHES[line.dash] }),
    svg("path", { class: "marks", d: line.marker ? `M15 6${MARKERS[line.marker]}` : "" }));
}

// Each figure is drawn when it is about to be seen, and all are before printing.
const waiting = new Set(document.querySelectorAll("figure.chart"));

function draw(elements) {
  const figures = elements.filter((element) => waiting.delete(element)).map((element) => new Figure(element));
  for (const figure of figures) figure.settle();
  const widths = figures.map((figure) => figure.plot.clientWidth); // all at once: the page is laid out once, not for each
  figures.forEach((figure, number) => figure.redraw(widths[number]));
}

const drawAll = () => draw([...waiting]);

if ("IntersectionObserver" in window) {
  const seen = (entries) => draw(entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target));
  const observer = new IntersectionObserver(seen, { rootMargin: "600px" });
  for (const element of waiting) observer.observe(element);
} else drawAll();
window.addEventListener("beforeprint", drawAll);
window.matchMedia("print").addEventListener("change", drawAll);
