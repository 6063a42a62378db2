// Axes: scale, ticks and labels. Labels that would overlap are left out.
const UNITS = {
  seconds: most => most < 180 ? [1, "seconds"] : most < 3 * 3600 ? [60, "minutes"] : most < 72 * 3600 ? [3600, "hours"] : [86400, "days"],
  bytes: most => most < 1e3 ? [1, "B"] : most < 1e6 ? [1e3, "kB"] : most < 1e9 ? [1e6, "MB"] : most < 1e12 ? [1e9, "GB"] : [1e12, "TB"],
  share: () => [.01, "%"], joules: most => most < 1e4 ? [1, "J"] : most < 1e7 ? [1e3, "kJ"] : [1e6, "MJ"],
};
const FINE_SECONDS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000];
const LOG_SECONDS = [1e-6, 1e-5, 1e-4, .001, .01, .1, 1, 10, 60, 600, 3600, 36000, 360000, 3600000];
const plain = v => Math.abs(v) >= 1e4 ? (Math.abs(v) >= 1e6 ? `${trim(v / 1e6)}M` : `${trim(v / 1e3)}k`) : String(+v.toPrecision(6));
const niceStep = raw => { const power = 10 ** Math.floor(Math.log10(raw)), rest = raw / power; return (rest > 5 ? 10 : rest > 2 ? 5 : rest > 1 ? 2 : 1) * power; };

function axis(spec, from, to, room) {
  // spec: {name, kind, min, max, log, tight}; from, to: pixels; room: pixels per tick
  let low = spec.min, high = spec.max;
  if (!(high > low)) { high = spec.log ? low * 10 || 1 : low + (Math.abs(low) || 1); if (!spec.log && low > 0) low = 0; }
  const length = Math.abs(to - from), wanted = Math.max(2, Math.floor(length / room));
  if (spec.log) {
    const a = Math.log(low), b = Math.log(high), scale = v => from + (to - from) * (Math.log(Math.max(v, low)) - a) / (b - a);
    let ticks = spec.kind === "seconds" ? LOG_SECONDS.slice() : Array.from({length:40}, (_, i) => 10 ** (i - 15));
    ticks = ticks.filter(v => v >= low * .999 && v <= high * 1.001);
    if (spec.kind === "seconds" && ticks.length < 4) { const fine = FINE_SECONDS.filter(v => v >= low * .999 && v <= high * 1.001); if (fine.length > ticks.length) ticks = fine; }
    if (ticks.length < 2 && spec.kind !== "seconds") ticks = Array.from({length:40}, (_, i) => 10 ** (i - 15)).flatMap(v => [v, 2 * v, 5 * v]).filter(v => v >= low * .999 && v <= high * 1.001);
    const text = v => spec.kind === "share" ? `${+(100 * v).toPrecision(3)} %` : spec.kind === "seconds" ? (v < 1 ? duration(v) : v < 60 ? `${v} s` : v < 3600 ? `${v / 60} min` : `${v / 3600} h`) : spec.kind === "bytes" ? size(v) : plain(v);
    return {scale, invert:p => Math.exp(a + (b - a) * (p - from) / (to - from)), ticks:ticks.map(v => ({v, text:text(v)})), name:spec.name, low, high};
  }
  const [unit, unitName] = (UNITS[spec.kind] || (() => [1, ""]))(Math.max(Math.abs(low), Math.abs(high)));
  let step = niceStep((high - low) / unit / wanted) * unit;
  if (spec.kind === "count") step = Math.max(1, step);
  if (!spec.tight) { high = Math.ceil(high / step - 1e-9) * step; low = Math.floor(low / step + 1e-9) * step; if (high <= low) high = low + step; }
  const ticks = [], digits = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    const v = k * step, value = v / unit;
    ticks.push({v, text:digits ? value.toFixed(digits) : plain(+value.toFixed(0))});
  }
  const scale = v => from + (to - from) * (v - low) / (high - low);
  return {scale, invert:p => low + (high - low) * (p - from) / (to - from), ticks, name:unitName ? `${spec.name} (${unitName})` : spec.name, low, high};
}
// Draws grid, ticks and names into an SVG; returns the axes and the area for the data.
function frame(made, width, height, xSpec, ySpec, options = {}) {
  const top = options.top ?? 26, bottom = height - (options.bottom ?? 44), right = width - (options.right ?? 14);
  let y = axis(ySpec, bottom, top, 46);
  const left = Math.ceil(Math.max(...y.ticks.map(t => measure(t.text)), 10)) + 10;
  const x = axis(xSpec, left, right, width < 500 ? 52 : 76);
  for (const tick of y.ticks) {
    const at = y.scale(tick.v);
    made.append(svg("line", {class:"grid", x1:left, x2:right, y1:at, y2:at}), svg("text", {x:left - 7, y:at + 4, "text-anchor":"end"}, tick.text));
  }
  let free = -Infinity;
  for (const tick of x.ticks) {
    const at = x.scale(tick.v), half = measure(tick.text) / 2 + 2;
    if (options.xGrid !== false) made.append(svg("line", {class:"grid", x1:at, x2:at, y1:top, y2:bottom}));
    const place = Math.min(at, width - half);
    if (place - half > free) { made.append(svg("text", {x:place, y:bottom + 17, "text-anchor":"middle"}, tick.text)); free = place + half + 6; }
  }
  made.append(svg("line", {class:"axis", x1:left, x2:right, y1:bottom, y2:bottom}));
  made.append(svg("text", {x:0, y:12, class:"strong name"}, y.name));
  if (x.name) made.append(svg("text", {x:right, y:bottom + 35, "text-anchor":"end", class:"strong name"}, x.name));
  return {x, y, left, right, top, bottom};
}
