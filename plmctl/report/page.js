// Values of pictures, by pointer and by arrow keys; tables that are too wide for the page as lists.
"use strict";
const MOVES = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
const LINES = { ArrowUp: -1, ArrowDown: 1 }; // of a heat map

// What a picture can say, in order: {x, y, text, element} in its own pixels. Lines say together what
// they are at one place of the axis; y is null then.
function listStops(svg) {
  const columns = new Map();
  for (const line of svg.querySelectorAll("[data-values]")) {
    const name = line.querySelector("title").textContent;
    line.dataset.values.split(" ").forEach((pair, number) => {
      const [at, value] = pair.split(",");
      const x = line.points ? line.points[number].x : line.cx.baseVal.value;
      const stop = columns.get(at) || { x, y: null, text: at };
      stop.text += stop.name === name ? ` ${value}` : ` · ${name} ${value}`;
      columns.set(at, { ...stop, name });
    });
  }
  const shapes = [...svg.querySelectorAll(":not([data-values]) > title")].map((title) => {
    const element = title.parentElement, box = element.getBBox();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    return { x, y, text: title.textContent, element };
  });
  const cells = [...svg.querySelectorAll("[data-cells]")].flatMap((map) => {
    const lines = map.dataset.cells.split(";").map((line) => line.split(" "));
    const names = map.dataset.lines ? map.dataset.lines.split("|") : [];
    const [left, top, width, height] = ["x", "y", "width", "height"].map(
      (name) => map[name].baseVal.value);
    const [wide, high] = [(width - 1) / lines[0].length, (height - 1) / lines.length];
    return lines.flatMap((line, down) => line.map((value, across) => ({
      x: left + 0.5 + wide * (across + 0.5), y: top + 0.5 + high * (down + 0.5), wide, high,
      text: `${names[down] || down}, ${across}: ${value}`, columns: line.length })));
  });
  return [...cells, ...[...columns.values()].sort((one, other) => one.x - other.x), ...shapes];
}

for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg"), stops = listStops(svg);
  const said = figure.appendChild(document.createElement("output"));
  const [cursor, frame] = ["line", "rect"].map(
    (name) => document.createElementNS(svg.namespaceURI, name));
  let now = -1;
  const show = (number) => {
    stops[now]?.element?.classList.remove("on");
    cursor.remove();
    frame.remove();
    now = number;
    const stop = stops[now];
    said.textContent = stop ? stop.text : "";
    stop?.element?.classList.add("on");
    if (stop && stop.wide) {
      const box = { x: stop.x - stop.wide / 2, y: stop.y - stop.high / 2, fill: "none" };
      const look = { ...box, width: stop.wide, height: stop.high, class: "cursor cell" };
      for (const [name, value] of Object.entries(look)) frame.setAttribute(name, value);
      svg.append(frame);
    }
    if (stop && stop.y === null) {
      const bottom = svg.querySelector(".axis").y1.baseVal.value;
      const ends = { x1: stop.x, x2: stop.x, y1: 44, y2: bottom, class: "cursor" };
      for (const [name, value] of Object.entries(ends)) cursor.setAttribute(name, value);
      svg.append(cursor);
    }
  };
  const find = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(
      svg.getScreenCTM().inverse());
    const far = (stop) => Math.hypot(stop.x - at.x, stop.y === null ? 0 : stop.y - at.y);
    show(stops.reduce((best, stop, number) =>
      best < 0 || far(stop) < far(stops[best]) ? number : best, -1));
  };
  svg.addEventListener("pointermove", find);
  svg.addEventListener("pointerdown", find);
  svg.addEventListener("pointerleave", () => show(-1));
  figure.addEventListener("blur", () => show(-1));
  figure.addEventListener("keydown", (event) => {
    const columns = stops[Math.max(0, now)]?.columns;
    const move = MOVES[event.key] ?? (columns && columns * LINES[event.key]);
    if (!move) return;
    event.preventDefault();
    show(Math.max(0, Math.min(stops.length - 1, now + move)));
  });
}

const boxes = [...document.querySelectorAll(".wide")];
for (const box of boxes) {
  const heads = [...box.querySelectorAll("th")].map((head) => head.textContent);
  for (const row of box.querySelectorAll("tbody tr"))
    [...row.cells].forEach((cell, number) => (cell.dataset.head = heads[number]));
}
function fit() {
  boxes.forEach((box) => box.classList.remove("list"));
  const wide = boxes.map((box) => box.scrollWidth > box.clientWidth + 1);
  boxes.forEach((box, number) => box.classList.toggle("list", wide[number]));
}
addEventListener("resize", fit);
addEventListener("toggle", fit, true);
fit();
