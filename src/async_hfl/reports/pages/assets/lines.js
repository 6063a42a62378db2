// Curves with bands, dots and rules, a legend that hides and shows lines, and values under the pointer.
const DASHES = ["", "7 4", "2 3", "10 3 2 3"];
const style = number => ({colour:`var(--c${number % 8})`, dash:DASHES[Math.floor(number / 8) % DASHES.length]});
const hiddenNames = new Set();  // shared by all charts of the page: a hidden method is hidden everywhere
const legends = [];

function legend(lines, again) {
  const box = el("div", {class:"legend"});
  const entries = new Map(lines.filter(line => line.name && !line.unnamed).map(line => [line.name, line]));
  if (entries.size < 2) return box;
  const paint = () => box.querySelectorAll("button").forEach(b => b.setAttribute("aria-pressed", !hiddenNames.has(b.dataset.name)));
  for (const [name, line] of entries) {
    const mark = svg("svg", {viewBox:"0 0 22 10", "aria-hidden":"true"});
    mark.append(svg("line", {x1:0, x2:22, y1:5, y2:5, "stroke-width":line.width || 2.2, "stroke-dasharray":line.dash || null, style:`stroke:${line.colour}`}));
    box.append(el("button", {type:"button", "data-name":name, title:"click to hide or show; double-click to show only this", onclick:() => { hiddenNames.has(name) ? hiddenNames.delete(name) : hiddenNames.add(name); legends.forEach(act => act()); },
      ondblclick:() => { const others = [...entries.keys()].filter(other => other !== name), alone = others.every(other => hiddenNames.has(other)); hiddenNames.clear(); if (!alone) others.forEach(other => hiddenNames.add(other)); legends.forEach(act => act()); }}, mark, name));
  }
  paint();
  legends.push(() => { paint(); again(); });
  return box;
}
const extent = values => { let low = Infinity, high = -Infinity; for (const v of values) if (v !== null && Number.isFinite(v)) { if (v < low) low = v; if (v > high) high = v; } return [low, high]; };
const path = points => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const stepped = points => points.flatMap((p, i) => i ? [[p[0], points[i - 1][1]], p] : [p]);
// The value of a line at x: the last point at or before x for steps, otherwise interpolated.
function valueAt(line, x) {
  const points = line.points;
  if (!points.length || x < points[0][0] || x > points[points.length - 1][0]) return null;
  let low = 0, high = points.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (points[middle][0] <= x) low = middle; else high = middle - 1; }
  const a = points[low], b = points[low + 1];
  if (line.step || !b || b[0] === a[0]) return {x:a[0], y:a[1]};
  return {x, y:a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0])};
}

// spec(): {height, label, x:{name, kind, log}, y:{...}, lines:[{name, colour, dash, points, band, step, faint}], rules, spans, dots}
let clips = 0;
function lineChart(spec) {
  let now = spec(), zoomed = null;
  const chart = plot((width, tip, box) => {
    now = spec();
    const height = Math.round(Math.min(now.height || 340, Math.max(270, width * .72))), made = svg("svg", {width, height, viewBox:`0 0 ${width} ${height}`});
    const lines = now.lines.filter(line => !hiddenNames.has(line.name) && line.points.length), dots = (now.dots || []).filter(dot => !hiddenNames.has(dot.name));
    if (!lines.length) { made.append(svg("text", {x:width / 2, y:height / 2, "text-anchor":"middle"}, now.lines.some(line => line.points.length) ? "all lines are hidden" : now.empty || "nothing to show yet")); return made; }
    const inside = x => !zoomed || (x >= zoomed[0] && x <= zoomed[1]);
    const xs = zoomed || extent(lines.flatMap(line => [line.points[0][0], line.points[line.points.length - 1][0]]).concat(dots.map(d => d.x)));
    const ys = extent(lines.flatMap(line => line.points.filter(p => inside(p[0])).map(p => p[1]).concat((line.band || []).filter(b => inside(b[0])).flatMap(b => [b[1], b[2]]))).concat((now.rules || []).map(r => r.y)));
    // A logarithmic axis begins at the least positive value: an evaluation may come before the first update.
    if (now.x.log && xs[0] <= 0) xs[0] = Math.min(xs[1], ...lines.flatMap(line => line.points.map(p => p[0])).filter(x => x > 0));
    const xSpec = {tight:true, min:now.x.log ? xs[0] : Math.min(0, xs[0]), max:xs[1], ...now.x, ...(zoomed ? {min:zoomed[0], max:zoomed[1]} : {})}, ySpec = {min:ys[0], max:ys[1], ...now.y};
    const f = frame(made, width, height, xSpec, ySpec), X = v => f.x.scale(v), Y = v => f.y.scale(Math.min(Math.max(v, f.y.low), f.y.high));
    const clip = `clip${++clips}`, definition = svg("clipPath", {id:clip}), drawn = svg("g", {"clip-path":`url(#${clip})`});
    definition.append(svg("rect", {x:f.left - (zoomed ? 0 : 6), y:f.top - 6, width:f.right - f.left + (zoomed ? 0 : 12), height:f.bottom - f.top + 12}));
    made.append(definition, drawn);
    for (const span of now.spans || []) {
      drawn.append(svg("rect", {x:X(span.from), width:Math.max(1, X(span.to) - X(span.from)), y:f.top, height:f.bottom - f.top, style:"fill:var(--soft)", "fill-opacity":.1}));
      if (span.text && X(span.to) - X(span.from) > measure(span.text) + 8 && !zoomed) made.append(svg("text", {x:(X(span.from) + X(span.to)) / 2, y:f.bottom - 7, "text-anchor":"middle"}, span.text));
    }
    for (const rule of now.rules || []) {
      made.append(svg("line", {x1:f.left, x2:f.right, y1:Y(rule.y), y2:Y(rule.y), "stroke-dasharray":"5 4", "stroke-width":1.3, style:"stroke:var(--ink)", "stroke-opacity":.65}));
      if (rule.text) made.append(svg("text", {x:f.left + 6, y:Y(rule.y) - 6 < f.top + 8 ? Y(rule.y) + 15 : Y(rule.y) - 6, class:"strong halo", "paint-order":"stroke", "stroke-width":4, style:"stroke:var(--card)"}, rule.text));
    }
    for (const line of lines) if (line.band && line.band.length > 1) {
      const upper = (line.step ? stepped(line.band.map(b => [b[0], b[2]])) : line.band.map(b => [b[0], b[2]])), lower = (line.step ? stepped(line.band.map(b => [b[0], b[1]])) : line.band.map(b => [b[0], b[1]])).reverse();
      drawn.append(svg("path", {d:path(upper.concat(lower).map(([x, y]) => [X(x), Y(y)])) + "Z", style:`fill:${line.colour}`, "fill-opacity":Math.min(.16, .9 / lines.length).toFixed(3), stroke:"none", class:"band"}));
    }
    for (const line of lines) {
      const points = (line.step ? stepped(line.points) : line.points).map(([x, y]) => [X(x), Y(y)]);
      drawn.append(svg("path", {d:path(points), fill:"none", "stroke-width":line.width || (line.faint ? 1.2 : 2.1), "stroke-opacity":line.faint ? .65 : 1, "stroke-dasharray":line.dash || null, "stroke-linejoin":"round", style:`stroke:${line.colour}`, class:"data"}));
      if (points.length === 1 || line.marks) points.forEach(([x, y]) => drawn.append(svg("circle", {cx:x, cy:y, r:3.2, style:`fill:${line.colour}`, class:"data"})));
    }
    for (const dot of dots) drawn.append(svg("circle", {cx:X(dot.x), cy:Y(dot.y), r:4.4, style:`fill:${dot.colour};stroke:var(--card)`, "stroke-width":1.6}));
    const cross = svg("line", {class:"cross", y1:f.top, y2:f.bottom, visibility:"hidden"}), marks = svg("g");
    made.append(cross, marks);
    const choice = svg("rect", {y:f.top, height:f.bottom - f.top, style:"fill:var(--on)", "fill-opacity":.14, visibility:"hidden"}), place = event => { const at = made.getBoundingClientRect(); return Math.min(Math.max((event.clientX - at.left) * width / at.width, f.left), f.right); };
    let held = null;
    made.append(choice);
    made.addEventListener("pointerdown", event => { if (event.pointerType === "mouse" && event.button === 0) { held = place(event); made.setPointerCapture(event.pointerId); } });
    made.addEventListener("pointerup", event => {
      const from = held, to = place(event);
      held = null; choice.setAttribute("visibility", "hidden");
      if (from !== null && Math.abs(to - from) > 8) { zoomed = [f.x.invert(Math.min(from, to)), f.x.invert(Math.max(from, to))]; tip.hide(); chart.again(); }
    });
    made.addEventListener("dblclick", () => { if (zoomed) { zoomed = null; chart.again(); } });
    const hide = () => { cross.setAttribute("visibility", "hidden"); marks.replaceChildren(); tip.hide(); };
    made.addEventListener("pointerleave", hide);
    made.addEventListener("pointermove", event => {
      const ratio = width / made.getBoundingClientRect().width, px = (event.clientX - made.getBoundingClientRect().left) * ratio;
      if (held !== null) { const to = place(event); choice.setAttribute("x", Math.min(held, to)); choice.setAttribute("width", Math.abs(to - held)); choice.setAttribute("visibility", "visible"); tip.hide(); return; }
      if (px < f.left - 4 || px > f.right + 4) return hide();
      const x = f.x.invert(Math.min(Math.max(px, f.left), f.right));
      const found = lines.filter(line => !line.silent).map(line => [line, valueAt(line, x)]).filter(([, at]) => at !== null && at.y !== null).sort((a, b) => b[1].y - a[1].y);
      if (!found.length) return hide();
      cross.setAttribute("x1", px); cross.setAttribute("x2", px); cross.setAttribute("visibility", "visible");
      marks.replaceChildren(...found.map(([line, at]) => svg("circle", {cx:px, cy:Y(at.y), r:3.4, style:`fill:${line.colour};stroke:var(--card)`, "stroke-width":1.2})));
      const named = found.slice(0, 14).map(([line, at]) => [line.colour, line.label || line.name, show(at.y, now.y.kind)]);
      tip.show(px / ratio, (f.top + f.bottom) / 2.4, `${now.x.say || ""}${show(x, now.x.kind)}`, named);
    });
    return made;
  }, spec().label);
  const names = legend(now.lines, chart.again);
  return el("div", {}, chart.box, names);
}
// Several runs as one line: the mean on a common grid, with a band from lowest to highest. A run that has ended keeps
// its last value, because its model does not change any more.
function meanLine(runs, axisOf, valueOf, log = false, points = 260) {
  const known = runs.filter(run => axisOf(run).length);
  if (!known.length) return {points:[], band:[]};
  const begin = Math.max(...known.map(run => axisOf(run)[0])), end = Math.max(...known.map(run => axisOf(run)[axisOf(run).length - 1]));
  const places = known.map(() => 0), line = [], band = [];
  for (let k = 0; k <= points; k++) {
    const x = k === points ? end : log && begin > 0 ? begin * (end / begin) ** (k / points) : begin + (end - begin) * k / points;
    let sum = 0, low = Infinity, high = -Infinity;
    known.forEach((run, i) => {
      const xs = axisOf(run), ys = valueOf(run);
      while (places[i] + 1 < xs.length && xs[places[i] + 1] <= x) places[i]++;
      const y = ys[places[i]]; sum += y; low = Math.min(low, y); high = Math.max(high, y);
    });
    line.push([x, sum / known.length]); band.push([x, low, high]);
    if (end === begin) break;
  }
  return {points:line, band:known.length > 1 ? band : []};
}
