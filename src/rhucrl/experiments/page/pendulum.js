"use strict";

// The pendulums under attack: positions are steps, fractions between them.

const between = (values, at) => {
  const i = clamp(Math.floor(at), 0, values.length - 1), j = Math.min(i + 1, values.length - 1);
  return values[i] + (values[j] - values[i]) * (at - i);
};
const held = (values, at) => values[clamp(Math.floor(at), 0, values.length - 1)]; // an action lasts for its step
const percent = (x) => (Math.abs(x) < 0.005 ? "" : ` (${x > 0 ? "+" : "\u2212"}${Math.round(100 * Math.abs(x))}\u2009%)`);

class Stage {
  constructor(element, episode) {
    Object.assign(this, { element, episode, canvas: element.querySelector("canvas") });
    this.earned = episode.reward.reduce((sums, r) => [...sums, (sums[sums.length - 1] || 0) + r], []);
    const change = (values, usual) => Math.max(...values.map((v) => Math.abs(v / usual - 1)), 0.01);
    this.reach = Math.max(change(episode.gravity, 10), change(episode.mass, 1));
  }

  draw(at) {
    const style = getComputedStyle(this.element), ink = (name) => style.getPropertyValue(`--${name}`).trim();
    const size = this.canvas.clientWidth, sharp = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(size * sharp)) this.canvas.width = this.canvas.height = Math.round(size * sharp);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, size, size);
    pen.translate(size / 2, size / 2);
    const shades = { own: ink(this.episode.color), ink: ink("ink"), soft: ink("soft"), grid: ink("grid"), torque: ink("torque"), card: ink("card") };
    this.scene(pen, size * 0.39, at, shades);
    this.tell(at);
  }

  scene(pen, length, at, shades) {
    const { theta, torque, gravity, mass } = this.episode;
    const tip = (angle) => [-length * Math.sin(angle), -length * Math.cos(angle)];
    circle(pen, 0, 0, length, shades.grid, 1.5);
    pen.setLineDash([3, 5]);
    stroke(pen, shades.soft, 1.2, [0, -length * 0.4], [0, -length * 1.14]);
    pen.setLineDash([]);
    pen.lineCap = "butt";
    for (let back = 26; back > 0; back--) {
      if (at - back * 0.5 < 0) continue;
      pen.globalAlpha = 0.35 * (1 - back / 27);
      stroke(pen, shades.own, 5, tip(between(theta, at - back * 0.5)), tip(between(theta, at - (back - 1) * 0.5)));
    }
    pen.globalAlpha = 1;
    pen.lineCap = "round";
    const end = tip(between(theta, at)), heavy = held(mass, at);
    stroke(pen, shades.own, Math.max(6, length * 0.13 * heavy), [0, 0], end);
    const centre = end.map((v) => v / 2), fall = length * 0.42 * (held(gravity, at) / 10) ** 2;
    for (const [shade, width] of [[shades.card, 5], [shades.ink, 2]]) { // a halo, to be seen on the rod
      arrow(pen, shade, width, centre, [centre[0], centre[1] + fall]);
    }
    this.torque(pen, length * 0.27, held(torque, at), shades.torque);
    pen.fillStyle = shades.ink;
    pen.beginPath();
    pen.arc(0, 0, Math.max(3, length * 0.035), 0, 7);
    pen.fill();
  }

  torque(pen, radius, value, shade) {
    if (Math.abs(value) < 0.02) return;
    const start = -Math.PI / 2, sweep = -value * 1.15, end = start + sweep;
    pen.strokeStyle = shade;
    pen.lineWidth = Math.max(2, radius / 9);
    pen.beginPath();
    pen.arc(0, 0, radius, start, end, sweep < 0);
    pen.stroke();
    const point = [radius * Math.cos(end), radius * Math.sin(end)];
    head(pen, shade, Math.max(6, radius / 3), point, end + (Math.sign(sweep) * Math.PI) / 2);
  }

  tell(at) {
    const { gravity, mass, torque } = this.episode, [g, m, u] = [gravity, mass, torque].map((values) => held(values, at));
    const set = (name, text, share) => {
      this.element.querySelector(`[data-out=${name}]`).innerHTML = text;
      const bar = this.element.querySelector(`[data-dial=${name}] i`);
      if (bar) bar.style.cssText = `left:${50 + Math.min(0, 50 * share)}%;width:${Math.abs(50 * share)}%`;
    };
    set("gravity", show(g, 1) + percent(g / 10 - 1), (g / 10 - 1) / this.reach);
    set("mass", show(m, 2) + percent(m - 1), (m - 1) / this.reach);
    set("torque", show(u, 2), -u / 2);
    set("return", `<small>return</small>${show(held(this.earned, at), 0)}`, 0);
  }
}

function stroke(pen, shade, width, from, to) {
  pen.strokeStyle = shade;
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}

function circle(pen, x, y, radius, shade, width) {
  pen.strokeStyle = shade;
  pen.lineWidth = width;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 7);
  pen.stroke();
}

function head(pen, shade, size, at, angle) {
  pen.save();
  pen.translate(...at);
  pen.rotate(angle);
  pen.fillStyle = shade;
  pen.beginPath();
  pen.moveTo(size * 0.9, 0);
  pen.lineTo(-size * 0.4, -size * 0.65);
  pen.lineTo(-size * 0.4, size * 0.65);
  pen.fill();
  pen.restore();
}

function arrow(pen, shade, width, from, to) {
  stroke(pen, shade, width, from, to);
  head(pen, shade, 6 + width, to, Math.atan2(to[1] - from[1], to[0] - from[0]));
}

function animate(theatre) {
  const stages = [...theatre.querySelectorAll(".stage")].map((e) => new Stage(e, data.episodes[Number(e.dataset.episode)]));
  const button = theatre.querySelector("button"), slider = theatre.querySelector("input");
  const clock = theatre.querySelector(".controls output");
  const running = charts.find((chart) => theatre.contains(chart.element));
  const seconds = stages[0].episode.seconds, last = Math.max(...stages.map((s) => s.episode.theta.length)) - 1;
  let at = 0, playing = false, before = 0;

  const draw = () => {
    stages.forEach((stage) => stage.draw(at));
    slider.value = at;
    clock.textContent = `${show(at * seconds, 1)} s`;
    running?.point(Math.min(at, last) * seconds);
  };
  const tick = (now) => {
    if (!playing) return;
    at += Math.min(0.1, (now - before) / 1000) / seconds;
    before = now;
    if (at >= last + 30) at = 0; // a pause of 30 steps at the end
    draw();
    requestAnimationFrame(tick);
  };
  const play = (go) => {
    playing = go;
    button.textContent = go ? "Pause" : "Play";
    before = performance.now();
    if (go) requestAnimationFrame(tick);
  };
  const seek = (step) => {
    play(false);
    at = clamp(step, 0, last);
    draw();
  };

  slider.max = last;
  slider.addEventListener("input", () => seek(Number(slider.value)));
  button.addEventListener("click", () => play(!playing));
  if (running) running.onpick = (x) => seek(x / seconds);
  new ResizeObserver(draw).observe(theatre);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  play(!matchMedia("(prefers-reduced-motion: reduce)").matches);
}

document.querySelectorAll(".theatre").forEach(animate);
