// An offline map of sites, drawn without tiles. Drag, scroll, pinch or use the arrow keys.
// parts: {box, canvas, tip, legend} are elements and D is the network's data; returns functions to control the map.
function siteMap(parts, D) {
const {canvas, tip} = parts, pen = canvas.getContext("2d"), css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let mode = "own", view = {x:0, y:0, k:1}, size = {w:1, h:1}, hovered = null, gatewayOf = D.gateway_of, load = D.load;

// Web Mercator for geographic positions, the plane itself for others; y grows downwards, as on a screen.
const RADIUS = 6378137, rad = Math.PI / 180;
const project = D.degrees
  ? (lon, lat) => [RADIUS * lon * rad, -RADIUS * Math.log(Math.tan(Math.PI / 4 + lat * rad / 2))]
  : (x, y) => [x, -y];
const unproject = D.degrees
  ? (x, y) => [x / RADIUS / rad, (2 * Math.atan(Math.exp(-y / RADIUS)) - Math.PI / 2) / rad]
  : (x, y) => [x, -y];
const devices = D.device_x.map((x, i) => project(x, D.device_y[i])), gateways = D.gateway_x.map((x, i) => project(x, D.gateway_y[i]));
const outline = D.outline.map(ring => ring.map(([x, y]) => project(x, y)));
const toScreen = ([x, y]) => [(x - view.x) * view.k + size.w / 2, (y - view.y) * view.k + size.h / 2];
const seconds = s => s < 1 ? `${+s.toPrecision(2)} s` : s < 600 ? `${+s.toPrecision(3)} s` : s < 36000 ? `${+(s / 60).toPrecision(3)} min` : `${+(s / 3600).toPrecision(3)} h`;
const few = gateways.length <= 60;

function fit() {
  const all = devices.concat(gateways), xs = all.map(p => p[0]), ys = all.map(p => p[1]);
  const least = a => a.reduce((m, v) => Math.min(m, v)), most = a => a.reduce((m, v) => Math.max(m, v));
  const [a, b, c, d] = [least(xs), most(xs), least(ys), most(ys)];
  view = {x:(a + b) / 2, y:(c + d) / 2, k:Math.min(size.w * .88 / Math.max(b - a, 1e-9), size.h * .88 / Math.max(d - c, 1e-9))};
  if (!isFinite(view.k) || view.k > 1e6) view.k = 1;
  const beside = parts.legend.offsetWidth + 24, below = parts.legend.offsetHeight + 24;  // make room if the legend hides a site
  if (size.w > 3 * beside && all.some(p => { const [x, y] = toScreen(p); return x < beside && y < below; })) {
    view.k = Math.min(view.k, (size.w - beside) * .92 / Math.max(b - a, 1e-9)); view.x -= beside / 2 / view.k;
  }
  draw();
}
function resize() {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1, first = size.w === 1;
  size = {w:box.width, h:box.height};
  canvas.width = Math.round(box.width * ratio); canvas.height = Math.round(box.height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (first) fit(); else draw();
}
function line(a, b) { pen.moveTo(a[0], a[1]); pen.lineTo(b[0], b[1]); }
const nice = v => { const p = 10 ** Math.floor(Math.log10(v)); return (v / p >= 5 ? 5 : v / p >= 2 ? 2 : 1) * p; };

function draw() {
  const ground = D.outline.length ? css("--around") : css("--card");
  pen.fillStyle = ground; pen.fillRect(0, 0, size.w, size.h);
  pen.beginPath();
  for (const ring of outline) { ring.forEach((p, i) => { const q = toScreen(p); i ? pen.lineTo(...q) : pen.moveTo(...q); }); pen.closePath(); }
  pen.fillStyle = css("--land"); pen.fill(); pen.lineWidth = .8; pen.strokeStyle = css("--shore"); pen.stroke();
  if (!D.schematic) graticule();
  const at = devices.map(toScreen), hubs = gateways.map(toScreen);
  const crowd = Math.min(1, 40 / Math.sqrt(at.length)), closer = Math.min(2.2, Math.max(.75, Math.sqrt(size.w * size.h / 4000 / Math.max(at.length, 60))));
  if (mode === "own") {
    pen.globalAlpha = .5;
    gateways.forEach((_, j) => { pen.beginPath(); at.forEach((p, i) => { if (gatewayOf[i] === j) line(p, hubs[j]); });
      pen.lineWidth = .5 + 1 * crowd; pen.strokeStyle = D.colours[j]; pen.stroke(); });
  } else if (mode === "all") {
    pen.globalAlpha = .8;
    for (let c = D.quality.length - 1; c >= 0; c--) { pen.beginPath();
      D.link_class.forEach((k, n) => { if (k === c) line(at[D.link_device[n]], hubs[D.link_gateway[n]]); });
      pen.lineWidth = .4 + (1.5 - .25 * c) * crowd; pen.strokeStyle = D.quality[c]; pen.stroke(); }
  }
  pen.globalAlpha = 1;
  const r = 3.1 * closer;
  at.forEach(([x, y], i) => {
    if (x < -9 || y < -9 || x > size.w + 9 || y > size.h + 9) return;
    const j = gatewayOf[i]; pen.beginPath(); pen.arc(x, y, r, 0, 7);
    pen.fillStyle = j < 0 ? css("--soft") : D.colours[j]; pen.fill();
    if (r > 2.4) { pen.lineWidth = .8; pen.strokeStyle = css("--halo"); pen.stroke(); } });
  hubs.forEach(([x, y], j) => {
    const s = few ? 11 : 5; pen.beginPath(); pen.moveTo(x, y - s); pen.lineTo(x + s, y); pen.lineTo(x, y + s); pen.lineTo(x - s, y); pen.closePath();
    pen.fillStyle = D.colours[j]; pen.fill(); pen.lineWidth = few ? 1.8 : 1; pen.strokeStyle = css("--halo"); pen.stroke();
    if (few) { pen.fillStyle = "#fff"; pen.font = "700 10.5px system-ui, 'DejaVu Sans', sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.fillText(j, x, y + .5); } });
  if (hovered) { const [x, y] = toScreen(hovered.gateway ? gateways[hovered.i] : devices[hovered.i]);
    pen.beginPath(); pen.arc(x, y, hovered.gateway ? 15 : r + 4, 0, 7); pen.lineWidth = 2; pen.strokeStyle = css("--ink"); pen.stroke(); }
  if (!D.schematic) bar();
}
function graticule() {
  const [w, n] = unproject(view.x - size.w / 2 / view.k, view.y - size.h / 2 / view.k), [e, s] = unproject(view.x + size.w / 2 / view.k, view.y + size.h / 2 / view.k);
  const step = nice((e - w) / size.w * 150), digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const name = (v, plus, minus) => D.degrees ? `${Math.abs(v).toFixed(digits)}° ${v < 0 ? minus : plus}` : `${+(v / 1000).toPrecision(6)} km`;
  pen.setLineDash([4, 4]); pen.lineWidth = .7; pen.strokeStyle = css("--grid"); pen.beginPath();
  const across = [], up = [];
  for (let k = Math.ceil(w / step); k * step <= e; k++) across.push([toScreen(project(k * step, n))[0], k * step]);
  for (let k = Math.ceil(s / step); k * step <= n; k++) up.push([toScreen(project(w, k * step))[1], k * step]);
  across.forEach(([x]) => line([x, 0], [x, size.h])); up.forEach(([y]) => line([0, y], [size.w, y]));
  pen.stroke(); pen.setLineDash([]);
  pen.font = "10.5px system-ui, 'DejaVu Sans', sans-serif"; pen.fillStyle = css("--soft"); pen.textBaseline = "bottom"; pen.textAlign = "center";
  let free = 40;  // labels that would overlap are left out
  across.forEach(([x, v]) => { const text = name(v, "E", "W"), half = pen.measureText(text).width / 2; if (x - half > free && x + half < size.w - 180) { pen.fillText(text, x, size.h - 4); free = x + half + 14; } });
  pen.textAlign = "right"; pen.textBaseline = "middle";
  up.forEach(([y, v]) => { if (y > 60 && y < size.h - 60) pen.fillText(name(v, "N", "S"), size.w - 5, y - 7); });
}
function bar() {
  const middle = unproject(view.x, view.y), shrink = D.degrees ? Math.cos(middle[1] * rad) : 1;
  const metres = nice(130 / view.k * shrink), width = metres / shrink * view.k, x = size.w - 20 - width, y = size.h - 14;
  pen.strokeStyle = css("--ink"); pen.fillStyle = css("--ink"); pen.lineWidth = 2.5; pen.beginPath(); line([x, y], [x + width, y]); pen.stroke();
  pen.font = "11.5px system-ui, 'DejaVu Sans', sans-serif"; pen.textAlign = "center"; pen.textBaseline = "bottom";
  pen.fillText(metres >= 1000 ? `${metres / 1000} km` : `${metres} m`, x + width / 2, y - 4);
}

// Navigation -----------------------------------------------------------------------------------------------------
function zoom(factor, px = size.w / 2, py = size.h / 2) {
  const x = view.x + (px - size.w / 2) / view.k, y = view.y + (py - size.h / 2) / view.k;
  view.k *= factor; view.x = x - (px - size.w / 2) / view.k; view.y = y - (py - size.h / 2) / view.k; draw();
}
const pointers = new Map(); let apart = 0;
canvas.addEventListener("pointerdown", e => { pointers.set(e.pointerId, [e.offsetX, e.offsetY]); canvas.setPointerCapture(e.pointerId); canvas.classList.add("held"); apart = 0; });
for (const over of ["pointerup", "pointercancel"]) canvas.addEventListener(over, e => { pointers.delete(e.pointerId); apart = 0; if (!pointers.size) canvas.classList.remove("held"); });
canvas.addEventListener("pointermove", e => {
  const before = pointers.get(e.pointerId);
  if (!before) return hover(e.offsetX, e.offsetY);
  pointers.set(e.pointerId, [e.offsetX, e.offsetY]);
  if (pointers.size === 2) { const [a, b] = [...pointers.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]);
    if (apart) zoom(now / apart, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2); apart = now; return; }
  view.x -= (e.offsetX - before[0]) / view.k; view.y -= (e.offsetY - before[1]) / view.k; draw();
});
canvas.addEventListener("pointerleave", () => { hovered = null; tip.style.display = "none"; draw(); });
canvas.addEventListener("wheel", e => { e.preventDefault(); zoom(Math.exp(-e.deltaY * .0015), e.offsetX, e.offsetY); }, {passive:false});
canvas.addEventListener("dblclick", e => zoom(2, e.offsetX, e.offsetY));
canvas.addEventListener("keydown", e => {
  const step = {ArrowLeft:[-60, 0], ArrowRight:[60, 0], ArrowUp:[0, -60], ArrowDown:[0, 60]}[e.key];
  if (step) { view.x += step[0] / view.k; view.y += step[1] / view.k; draw(); e.preventDefault(); }
  else if (e.key === "+" || e.key === "=") zoom(1.4); else if (e.key === "-") zoom(1 / 1.4); else if (e.key === "0") fit();
});
function hover(px, py) {
  let best = null, near = 14;
  const look = (points, gateway) => points.forEach((p, i) => { const [x, y] = toScreen(p), d = Math.hypot(x - px, y - py) - (gateway ? 5 : 0); if (d < near) { near = d; best = {gateway, i}; } });
  look(devices, false); look(gateways, true);
  if (JSON.stringify(best) !== JSON.stringify(hovered)) { hovered = best; draw(); }
  if (!best) { tip.style.display = "none"; return; }
  tip.replaceChildren();
  const say = (text, tag = "div") => { const part = document.createElement(tag); part.textContent = text; tip.append(part); };
  if (best.gateway) {
    say(`gateway ${best.i}${D.gateway_names.length ? `, ${D.gateway_names[best.i]}` : ""}`, "b");
    say(`${load[best.i]} device${load[best.i] === 1 ? "" : "s"}`);
    if (D.gateway_height) say(`${D.gateway_height[best.i]} m high`);
  } else {
    say(`device ${D.drawn[best.i]}${D.device_names.length ? `, ${D.device_names[best.i]}` : ""}`, "b");
    const j = gatewayOf[best.i];
    say(j < 0 ? "no gateway" : `at gateway ${j}${D.gateway_names.length ? `, ${D.gateway_names[j]}` : ""}`);
    if (D.device_height) say(`${D.device_height[best.i]} m high`);
    say(`trains in ${seconds(D.compute[best.i])}`);
    D.link_device.forEach((i, n) => { if (i === best.i) say(`gateway ${D.gateway_names[D.link_gateway[n]] || D.link_gateway[n]}: a model down and up in ${seconds(D.link_seconds[n])}`); });
  }
  tip.style.display = "block";
  tip.style.left = `${Math.max(4, Math.min(px + 14, size.w - tip.offsetWidth - 8))}px`; tip.style.top = `${Math.max(4, Math.min(py + 14, size.h - tip.offsetHeight - 8))}px`;
}

function legend() {
  const box = parts.legend; box.replaceChildren();
  const row = (kind, colour, text) => { const part = document.createElement("div"), mark = document.createElement("i");
    mark.className = kind; mark.style.background = colour; part.append(mark, text); box.append(part); };
  if (mode === "all") { row("bar", "transparent", `${D.model} down and up`); D.quality.forEach((colour, c) => D.link_class.includes(c) && row("bar", colour, `${seconds(D.class_edges[c])} to ${seconds(D.class_edges[c + 1])}`)); }
  else if (gateways.length <= 14) D.colours.forEach((colour, j) => row("mark", colour, `${D.gateway_names.length ? `${j} ${D.gateway_names[j]}` : `gateway ${j}`}: ${load[j].toLocaleString("en")} device${load[j] === 1 ? "" : "s"}`));
  else { row("mark", css("--ink"), "gateway"); row("dot", css("--soft"), "device, in the colour of its gateway"); }
}
new ResizeObserver(resize).observe(parts.box);
return {
  draw, fit, zoom, resize,
  repaint: () => { legend(); draw(); },
  choose: next => { mode = next; legend(); draw(); },
  associate: (of, counts) => { gatewayOf = of; load = counts; legend(); draw(); },
};
}
