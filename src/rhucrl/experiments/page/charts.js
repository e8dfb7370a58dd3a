"use strict";

// Line charts as SVG, drawn at the width they are shown at, so that their words keep their size on a phone.

const data = JSON.parse(document.getElementById("data").textContent);

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const colour = (name) => `var(--${name})`;

function show(x, digits) {
  const text = Math.abs(x).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return (x < 0 && Number(text.replace(/,/g, "")) ? "\u2212" : "") + text.replace(/,/g, "\u202f");
}

function ticks(low, high, count, whole) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  let step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return { found, digits: clamp(-Math.floor(Math.log10(step) + 1e-9), 0, 6) };
}

const present = (values) => (values || []).filter((v) => v !== null);

function axes(spec, width) {
  const xs = spec.series.flatMap((s) => s.x);
  const ys = spec.series.flatMap((s) => [...present(s.y), ...present(s.low), ...present(s.high)]);
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  if (x0 === x1) [x0, x1] = [x0 - 0.5, x1 + 0.5];
  let [y0, y1] = spec.range || [Math.min(...ys), Math.max(...ys)];
  if (y0 === y1) [y0, y1] = [y0 - 1, y1 + 1];
  if (!spec.range) [y0, y1] = [y0 - 0.05 * (y1 - y0), y1 + 0.07 * (y1 - y0)];
  const height = clamp(Math.round(width * (spec.tall || 0.56)), 210, 380);
  const vertical = ticks(y0, y1, height > 260 ? 6 : 4, false);
  const names = vertical.found.map((v) => show(v, vertical.digits));
  const left = 14 + 7.4 * Math.max(...names.map((n) => n.length)), right = 16, top = 30, bottom = 44;
  const x = (v) => left + ((v - x0) / (x1 - x0)) * (width - left - right);
  const y = (v) => top + ((y1 - v) / (y1 - y0)) * (height - top - bottom);
  const horizontal = spec.xticks
    ? { found: spec.xticks, digits: spec.xdigits }
    : ticks(x0, x1, clamp(Math.round(width / 75), 3, 10), true);
  return { x, y, x0, x1, y0, y1, left, right, top, bottom, width, height, vertical, names, horizontal };
}

function stretches(series, ...columns) {
  const found = [[]];
  series.x.forEach((_, i) => {
    if (columns.every((c) => c[i] !== null)) found[found.length - 1].push(i);
    else if (found[found.length - 1].length) found.push([]);
  });
  return found.filter((part) => part.length);
}

function frame(a, spec) {
  const right = a.width - a.right, floor = a.height - a.bottom;
  const rows = a.vertical.found.map((v, i) =>
    `<line class="grid" x1="${a.left}" x2="${right}" y1="${a.y(v)}" y2="${a.y(v)}"/>` +
    `<text x="${a.left - 8}" y="${a.y(v) + 4}" text-anchor="end">${a.names[i]}</text>`);
  const columns = a.horizontal.found.map((v) =>
    `<line class="axis" x1="${a.x(v)}" x2="${a.x(v)}" y1="${floor}" y2="${floor + 5}"/>` +
    `<text x="${a.x(v)}" y="${floor + 19}" text-anchor="middle">${show(v, a.horizontal.digits)}</text>`);
  return rows.join("") + columns.join("") + (spec.mark ? upright(a, spec.mark) : "") +
    `<line class="axis" x1="${a.left}" x2="${right}" y1="${floor}" y2="${floor}"/>` +
    `<text x="${(a.left + right) / 2}" y="${a.height - 5}" text-anchor="middle">${escape(spec.x)}</text>` +
    `<text x="2" y="14">${escape(spec.y)}</text>`;
}

function upright(a, mark) {
  const x = a.x(mark.x), floor = a.height - a.bottom, fits = x < a.left + (a.width - a.left - a.right) / 2;
  return `<line class="guide" x1="${x}" x2="${x}" y1="${a.top}" y2="${floor}"/>` +
    `<text x="${fits ? x + 7 : x - 7}" y="${floor - 9}" text-anchor="${fits ? "start" : "end"}">${escape(mark.label)}</text>`;
}

function marks(a, s) {
  const at = (i, column) => `${a.x(s.x[i]).toFixed(1)},${a.y(column[i]).toFixed(1)}`;
  let out = "";
  if (s.low) for (const part of stretches(s, s.low, s.high)) {
    const around = [...part.map((i) => at(i, s.high)), ...part.reverse().map((i) => at(i, s.low))];
    out += `<polygon class="band" points="${around.join(" ")}" fill="${colour(s.color)}"/>`;
  }
  for (const part of s.style === "dots" || s.style === "band" ? [] : stretches(s, s.y)) {
    if (s.limit) {
      const [first, last] = [part[0], part[part.length - 1]].map((i) => a.x(s.x[i]));
      const above = `${first},${a.top} ${part.map((i) => at(i, s.y)).join(" ")} ${last},${a.top}`;
      out += `<polygon class="forbidden" points="${above}"/><text x="${last - 10}" y="${a.top + 20}" text-anchor="end">${escape(s.limit)}</text>`;
    }
    out += `<polyline class="line ${s.style}" points="${part.map((i) => at(i, s.y)).join(" ")}" stroke="${colour(s.color)}"/>`;
  }
  if (s.style !== "band" && s.style !== "plain" && s.x.length <= 60) s.x.forEach((v, i) => {
    const r = s.style === "dots" ? 4 : s.style === "dashed" ? 2.5 : 3.2;
    if (s.y[i] !== null) out += `<circle class="dot" cx="${a.x(v)}" cy="${a.y(s.y[i])}" r="${r}" fill="${colour(s.color)}"/>`;
  });
  return out;
}

class Chart {
  constructor(element, spec) {
    Object.assign(this, { element, spec, cursor: null });
    this.xs = [...new Set(spec.series.flatMap((s) => s.x))].sort((p, q) => p - q);
    element.addEventListener("pointermove", (event) => this.hover(event));
    element.addEventListener("pointerdown", (event) => this.hover(event));
    element.addEventListener("pointerleave", () => this.leave());
    new ResizeObserver(() => this.draw()).observe(element);
    this.draw();
  }

  draw() {
    const width = Math.round(this.element.clientWidth);
    if (!width || width === this.axes?.width) return;
    const a = (this.axes = axes(this.spec, width));
    const body = frame(a, this.spec) + this.spec.series.map((s) => marks(a, s)).join("");
    const upright = `y1="${a.top}" y2="${a.height - a.bottom}" visibility="hidden"`;
    this.element.innerHTML =
      `<svg viewBox="0 0 ${width} ${a.height}" height="${a.height}" role="img" aria-label="${escape(this.spec.title || this.spec.y)}">` +
      `${body}<line class="guide" ${upright}/><line class="cursor" ${upright}/></svg><div class="tip"></div>`;
    const lines = this.element.querySelectorAll("line");
    [this.guide, this.pointer] = [lines[lines.length - 2], lines[lines.length - 1]];
    this.tip = this.element.querySelector(".tip");
    if (this.cursor !== null) this.point(this.cursor);
  }

  place(line, x) {
    line.setAttribute("x1", this.axes.x(x));
    line.setAttribute("x2", this.axes.x(x));
    line.setAttribute("visibility", "visible");
  }

  point(x) {
    this.cursor = x;
    this.place(this.pointer, x);
  }

  hover(event) {
    const a = this.axes, box = this.element.getBoundingClientRect();
    const wanted = a.x0 + ((event.clientX - box.left - a.left) / (a.width - a.left - a.right)) * (a.x1 - a.x0);
    const x = this.xs.reduce((best, v) => (Math.abs(v - wanted) < Math.abs(best - wanted) ? v : best));
    const digits = this.spec.digits;
    const rows = this.spec.series.map((s) => {
      const i = s.x.indexOf(x), y = s.y?.[i] ?? null, low = s.low?.[i] ?? null;
      if (i < 0 || (y === null && low === null)) return "";
      const range = low === null ? "" : `${show(low, digits)} to ${show(s.high[i], digits)}`;
      const shown = y === null || s.style === "band" ? range : show(y, digits) + (range && ` (${range})`);
      return `<span style="--colour:${colour(s.color)}"><i></i>${escape(s.name)}<em>${shown}</em></span>`;
    });
    this.tip.innerHTML = `<b>${escape(this.spec.x)} ${show(x, this.spec.xdigits)}</b>${rows.join("")}`;
    const left = a.x(x) + 14 + this.tip.offsetWidth > a.width ? a.x(x) - 14 - this.tip.offsetWidth : a.x(x) + 14;
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${a.top}px)`;
    this.tip.style.opacity = 1;
    this.place(this.guide, x);
    if (event.buttons && this.onpick) this.onpick(x);
  }

  leave() {
    this.tip.style.opacity = 0;
    this.guide.setAttribute("visibility", "hidden");
  }
}

const charts = [...document.querySelectorAll(".plot")].map((e) => new Chart(e, data.panels[Number(e.dataset.panel)]));
